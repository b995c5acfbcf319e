"""The errors of process snapshots; each class requires a different reaction of the caller."""

from __future__ import annotations


class ProcessSnapshotError(Exception):
    """Base class of the errors of dumping and restoring processes; the message says what failed and why."""


class CriuUnavailableError(ProcessSnapshotError):
    """Raised if CRIU is missing, too old, or lacks the rights that it needs."""


class DumpRefusedError(ProcessSnapshotError):
    """Raised before a dump if processes use something that cannot be dumped; the processes were not changed."""


class DumpFailedError(ProcessSnapshotError):
    """Raised if a dump failed after it had begun. The caller must check whether the processes still run."""


class RestoreFailedError(ProcessSnapshotError):
    """Raised if a restore failed; none of the restored processes remains."""


class RestoreMismatchError(RestoreFailedError):
    """Raised if a process snapshot cannot be restored because this host lacks something that the host of the dump had."""
