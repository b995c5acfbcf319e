"""The errors of process snapshots, one class for each reaction of the caller."""

from __future__ import annotations


class ProcessSnapshotError(Exception):
    """Base class of the errors of this package; the message says what to do."""


class CriuUnavailableError(ProcessSnapshotError):
    """CRIU is missing, too old, or lacks the rights that it needs."""


class DumpRefusedError(ProcessSnapshotError):
    """The processes have something that cannot be dumped; they were not changed."""


class DumpFailedError(ProcessSnapshotError):
    """A dump failed after it had begun. The caller must check whether the processes still run."""


class RestoreFailedError(ProcessSnapshotError):
    """A restore failed; no process of it remains."""


class RestoreMismatchError(RestoreFailedError):
    """An image cannot be restored because this host lacks something that the host of the dump had."""
