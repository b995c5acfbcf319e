"""The interface of a training program (`Trainer`) and the driver that calls it (`TrainerDriver`).

This package imports the standard library only, so a training process can import it cheaply.
"""

from hopyard.trainer.base import Trainer, TrainerContext
from hopyard.trainer.cache import DataCache, cached, data_cache
from hopyard.trainer.driver import IterationReport, TrainerDriver
from hopyard.trainer.errors import (
    DriverUsageError,
    GangError,
    GangNotMetError,
    MetricsError,
    SnapshotStateError,
    TrainerError,
    TrainerPhase,
    UserCodeError,
)
from hopyard.trainer.snapshot_header import HEADER_NAME, STATE_FOLDER, SnapshotHeader, read_header, write_header

__all__ = [
    "HEADER_NAME",
    "STATE_FOLDER",
    "DataCache",
    "DriverUsageError",
    "GangError",
    "GangNotMetError",
    "IterationReport",
    "MetricsError",
    "SnapshotHeader",
    "SnapshotStateError",
    "Trainer",
    "TrainerContext",
    "TrainerDriver",
    "TrainerError",
    "TrainerPhase",
    "UserCodeError",
    "cached",
    "data_cache",
    "read_header",
    "write_header",
]
