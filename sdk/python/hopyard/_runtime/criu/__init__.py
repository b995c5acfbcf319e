"""Snapshots of processes, whatever they run: dumped by CRIU, packed, and restored on another node (docs/process-snapshots.md)."""

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
"""The snapshot provider that these are."""

AUTO: Final = "auto"
"""What an experiment says that leaves its provider open."""

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
