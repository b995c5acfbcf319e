"""What can go wrong with snapshots of processes, by what the caller does about it."""

from __future__ import annotations


class ProcessSnapshotError(Exception):
    """Root of the errors of this package; the message says what to do."""


class CriuUnavailableError(ProcessSnapshotError):
    """There is no CRIU here that can be used: missing, too old, or without the rights that it needs."""


class DumpRefusedError(ProcessSnapshotError):
    """The processes have something that cannot be dumped; nothing was touched."""


class DumpFailedError(ProcessSnapshotError):
    """A dump was begun and gave no image. Whether the processes live is to be looked at."""


class RestoreFailedError(ProcessSnapshotError):
    """No process came of an image; what was begun is ended."""


class RestoreMismatchError(RestoreFailedError):
    """An image cannot be restored on this computer, which lacks something that it had where it was taken."""
