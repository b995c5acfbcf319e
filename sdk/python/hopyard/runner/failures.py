"""Whose fault it is when a run fails, and what is said about it."""

from __future__ import annotations

import errno
from typing import Final

from hopyard.runner.gang import GangBrokenError
from hopyard.runner.program import ProgramError
from hopyard.snapshotfile import SnapshotFileError, SnapshotRefusedError
from hopyard.trainer import DriverUsageError, Phase, SnapshotStateError, UserCodeError
from hopyard.v1 import common_pb2
from hopyard.v1.resource_manager_pb2 import RunEnded

_TRACEBACK_LINES: Final = 12
_MESSAGE_CHARACTERS: Final = 8000

_MACHINE_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS})
"""What an OSError in the user's save or load means is the machine's disk, not the user's code."""


def ended_by(error: Exception, position: int) -> tuple[RunEnded, bool]:
    """Return the end of a run that raised, and whether its process should not be used for another.

    The user's code ends it as FAILED; anything else as LOST, so that the job goes back to its last snapshot.
    """
    match error:
        case UserCodeError():
            message = f"{error.phase} at position {error.position}: {error.reason}"
            lines = error.traceback_text.rstrip().splitlines()[-_TRACEBACK_LINES:]
            return _ended(position, "\n".join([message, *lines]), user=not _is_machine_error(error)), False
        case ProgramError():
            # A module that failed half-way leaves its imports behind.
            return _ended(position, str(error), user=True), True
        case SnapshotRefusedError():
            return _ended(position, f"{Phase.SAVE} at position {position}: {error}", user=True), False
        case SnapshotStateError() | SnapshotFileError():
            return _ended(position, f"{Phase.LOAD} at position {position}: {error}", user=False), False
        case GangBrokenError():
            return _ended(position, str(error), user=error.user), False
        case OSError():
            return _ended(position, f"at position {position}: {type(error).__name__}: {error}", user=False), False
        case DriverUsageError():
            return _ended(position, f"at position {position}: {error}", user=True), False
        case _:
            return _ended(position, f"a bug in the runner at position {position}: {error!r}", user=False), True


def _is_machine_error(error: UserCodeError) -> bool:
    cause = error.__cause__
    return error.phase in (Phase.SAVE, Phase.LOAD) and isinstance(cause, OSError) and cause.errno in _MACHINE_ERRORS


def _sendable(message: str) -> str:
    """What a message can hold: bounded, and without the halves of characters that a user's text may have."""
    return message[:_MESSAGE_CHARACTERS].encode("utf-8", "backslashreplace").decode()


def _ended(position: int, message: str, *, user: bool) -> RunEnded:
    return RunEnded(
        reason=common_pb2.RUN_END_REASON_FAILED if user else common_pb2.RUN_END_REASON_LOST,
        position=position,
        failure=common_pb2.FAILURE_CLASS_USER_CODE if user else common_pb2.FAILURE_CLASS_INFRASTRUCTURE,
        message=_sendable(message),
    )
