"""The deterministic core: `Core.handle(event) -> effects`. It uses the standard library only, does no I/O and reads no clock."""

from hopyard_engine.core.core import CLUSTER_STREAM, Core, UnknownStreamError, outstanding
from hopyard_engine.core.quarantine import quarantine

__all__ = ["CLUSTER_STREAM", "Core", "UnknownStreamError", "outstanding", "quarantine"]
