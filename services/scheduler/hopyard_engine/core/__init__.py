"""The deterministic core: `Core.handle(event) -> effects`. Standard library only; it never does I/O and never reads a clock."""

from hopyard_engine.core.core import CLUSTER_STREAM, Core, UnknownStreamError, outstanding
from hopyard_engine.core.quarantine import quarantine

__all__ = ["CLUSTER_STREAM", "Core", "UnknownStreamError", "outstanding", "quarantine"]
