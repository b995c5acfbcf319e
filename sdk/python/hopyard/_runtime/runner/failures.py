"""Classifies failures of a run (user code or infrastructure) and formats their messages."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from hopyard._runtime.criu.errors import ProcessSnapshotError
from hopyard._runtime.runner.command.metrics import TrainingCommandError
from hopyard._runtime.runner.gang.connections import GangBrokenError
from hopyard._runtime.runner.program import ProgramError
from hopyard._runtime.snapshot_file import SnapshotFileError, SnapshotRefusedError
from hopyard.trainer import (
    DriverUsageError,
    GangError,
    GangNotMetError,
    SnapshotStateError,
    TrainerPhase,
    UserCodeError,
)
from hopyard.v1 import common_pb2
from hopyard.v1.resource_manager_pb2 import RunEnded

NOTHING_REPORTED: Final = (
    "the program ended (exit code 0) and reported nothing; needs a call such as hopyard.report(accuracy=0.93) for each iteration, "
    "or log mode (log: {command: [...], metrics: ...})"
)

_TRACEBACK_LINES: Final = 12
_MESSAGE_CHARACTERS: Final = 8000

_DISK_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})
"""Error numbers of an OSError caused by the host's disk and not by user code, even if user code raised it."""

_PROCESS_ERRORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Error numbers of an OSError caused by a limit of the host or of the process. The next run needs a new process."""

_FULL_BYTES: Final = 1024 * 1024
"""Free space in bytes below which a disk is treated as full."""


def ended_by(error: Exception, position: int, disk: Path | None = None) -> tuple[RunEnded, bool]:
    """Return the message about the end of a run that raised an error, and whether its process must not be used for another run.

    Errors of user code end the run as FAILED, others as LOST, after which the job resumes from its last snapshot. An ImportError or a
    SyntaxError of user code, at whatever position, is permanent: another attempt would fail in the same way.

    Args:
        error: The error.
        position: Position of the run.
        disk: A folder on the disk to which snapshots are saved, whose free space is examined if user code failed to save;
            None: not examined.
    """
    match error:
        case UserCodeError():
            exhausted = _text_of_cause(error, _PROCESS_ERRORS)
            trouble = exhausted or _disk_trouble(error, disk)
            message = f"{error.phase} at position {error.position}: {error.reason}"
            if trouble and trouble not in message:
                message += f" ({trouble})"
            lines = error.traceback_text.rstrip().splitlines()[-_TRACEBACK_LINES:]
            permanent = isinstance(error.__cause__, ImportError | SyntaxError) and not trouble
            message = "\n".join([message, *lines])
            return _ended(position, message, user=not trouble, permanent=permanent), bool(exhausted)
        case TrainingCommandError():
            return _ended(position, str(error), user=error.user, permanent=error.permanent), False
        case ProgramError():
            # A failed import may leave modules half initialized, so the process is not reused.
            return _ended(position, str(error), user=True, unable=error.lasting, permanent=error.lasting), True
        case SnapshotRefusedError():
            return _ended(position, f"{TrainerPhase.SAVE} at position {position}: {error}", user=True), False
        case SnapshotStateError() | SnapshotFileError():
            return _ended(position, f"{TrainerPhase.LOAD} at position {position}: {error}", user=False), False
        case GangNotMetError():
            return _ended(position, f"at position {position}: {error}", user=False), True
        case GangError() | ProcessSnapshotError():
            return _ended(position, f"at position {position}: {error}", user=False), False
        case GangBrokenError():
            return _ended(position, str(error), user=error.user), False
        case OSError():
            return _ended(position, f"at position {position}: {type(error).__name__}: {error}", user=False), False
        case DriverUsageError():
            return _ended(position, f"at position {position}: {error}", user=True), False
        case _:
            return _ended(position, f"a bug in the runner at position {position}: {error!r}", user=False), True


def _disk_trouble(error: UserCodeError, disk: Path | None) -> str:
    """Return the disk problem of the host that made user code fail; empty if the disk is not the cause.

    Args:
        error: The error of the user code.
        disk: A folder on the disk to which snapshots are saved, whose free space is examined; None: not examined.
    """
    moving = error.phase in (TrainerPhase.SAVE, TrainerPhase.LOAD)
    if trouble := _text_of_cause(error, _DISK_ERRORS | {errno.EROFS} if moving else _DISK_ERRORS):
        return trouble
    # Libraries that write files without Python's I/O, such as torch.save, raise other errors when the disk is full.
    if error.phase is TrainerPhase.SAVE and disk is not None and shutil.disk_usage(disk).free < _FULL_BYTES:
        return f"no space left on the disk of {disk}"
    return ""


def _text_of_cause(error: BaseException, numbers: Collection[int]) -> str:
    """Return the text of the first OSError with one of these error numbers that caused an error; empty: there is none."""
    found = (cause for cause in _causes(error) if isinstance(cause, OSError) and cause.errno in numbers)
    return next((cause.strerror or str(cause) for cause in found), "")


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause = error.__cause__ or error.__context__
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def _sendable(message: str) -> str:
    """Return a message truncated to 8,000 characters, with lone surrogates escaped, so that it can be encoded as UTF-8."""
    return message[:_MESSAGE_CHARACTERS].encode("utf-8", "backslashreplace").decode()


def _ended(position: int, message: str, *, user: bool, unable: bool = False, permanent: bool = False) -> RunEnded:
    return RunEnded(
        reason=common_pb2.RUN_END_REASON_FAILED if user else common_pb2.RUN_END_REASON_LOST,
        position=position,
        failure=common_pb2.FAILURE_CLASS_USER_CODE if user else common_pb2.FAILURE_CLASS_INFRASTRUCTURE,
        message=_sendable(message),
        unable=unable,
        permanent=permanent,
    )
