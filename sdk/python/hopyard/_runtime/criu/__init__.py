"""Process snapshots: dumps of any process with CRIU, packed into a file and restored on another node (docs/process-snapshots.md)."""

from typing import Final

from hopyard._runtime.criu.errors import (
    CriuUnavailableError,
    DumpFailedError,
    DumpRefusedError,
    ProcessSnapshotError,
    RestoreFailedError,
    RestoreMismatchError,
)

PROVIDER: Final = "criu"
"""Name of the snapshot provider for process snapshots."""

AUTO: Final = "auto"
"""Default of `snapshot.provider`, with which Hopyard chooses between this provider and the program's checkpoints."""

__all__ = [
    "AUTO",
    "PROVIDER",
    "CriuUnavailableError",
    "DumpFailedError",
    "DumpRefusedError",
    "ProcessSnapshotError",
    "RestoreFailedError",
    "RestoreMismatchError",
]
