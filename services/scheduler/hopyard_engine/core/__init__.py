"""The deterministic core: `Core.handle(event)` returns effects. It uses only the standard library, does no I/O and reads no clock."""

from hopyard_engine.core.core import CLUSTER_STREAM, Core, UnknownStreamError, outstanding
from hopyard_engine.core.quarantine import quarantine

__all__ = ["CLUSTER_STREAM", "Core", "UnknownStreamError", "outstanding", "quarantine"]
