"""Errors of training code, grouped by how the caller should react.

::

    TrainerError
      UserCodeError         the user's code failed: counts towards `max_failures`; it would fail on any slot
        MetricsError        ... because it returned something that is not a mapping of str to float
      SnapshotStateError    the snapshot is not usable: fetch another copy or use an earlier one
      GangError             the ranks of a gang cannot communicate: not caused by the code; the job resumes from its snapshot
        GangNotMetError     ... already at the start: try again in another process
      DriverUsageError      the driver was called wrongly: a bug in the caller, not in the user's code
"""

from __future__ import annotations

import traceback
from enum import StrEnum
from typing import Self

_TRACEBACK_CHARACTERS = 64 * 1024
"""Maximum length of a traceback, which is sent in a message. Its beginning is cut, since its end names the error."""


class TrainerPhase(StrEnum):
    """The method of a trainer during which an error occurred. CREATE is the constructor."""

    CREATE = "create"
    BUILD = "build"
    SETUP = "setup"
    LOAD = "load"
    TRAIN = "train"
    EVALUATE = "evaluate"
    PROFILE = "profile"
    SAVE = "save"
    CLOSE = "close"


class TrainerError(Exception):
    """Base class of all errors of `hopyard.trainer`."""


class UserCodeError(TrainerError):
    """Raised when the user's trainer has failed.

    The constructor takes the attributes as keyword arguments of the same names.

    Attributes:
        trainer: Qualified name of the trainer class.
        phase: The method that was running.
        position: The job's position when the method was called.
        reason: Type and message of the exception, in one line.
        traceback_text: The user's traceback as text, without the driver's frames; may be empty.
    """

    def __init__(
        self, *, trainer: str, phase: TrainerPhase, position: int, reason: str, traceback_text: str = ""
    ) -> None:
        call = f"{trainer}()" if phase is TrainerPhase.CREATE else f"{trainer}.{phase.value}()"
        super().__init__(f"{call} failed at position {position}: {reason}")
        self.trainer = trainer
        self.phase = phase
        self.position = position
        self.reason = reason
        self.traceback_text = traceback_text

    @classmethod
    def wrapping(
        cls, error: BaseException, *, trainer: str, phase: TrainerPhase, position: int, caller_file: str = ""
    ) -> Self:
        """Create the error from an exception of the user's code.

        Args:
            error: The exception.
            trainer: Qualified name of the trainer class.
            phase: The method that was running.
            position: The job's position when the method was called.
            caller_file: File of the caller, whose frames at the beginning of the traceback are removed.
        """
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename == caller_file:
            frames = frames.tb_next
        text = "".join(traceback.format_exception(type(error), error, frames))
        if len(text) > _TRACEBACK_CHARACTERS:
            text = "[the beginning is left out]\n" + text[-_TRACEBACK_CHARACTERS:]
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return cls(trainer=trainer, phase=phase, position=position, reason=reason, traceback_text=text)


class MetricsError(UserCodeError):
    """Raised when `train()` or `evaluate()` returns something that is not a mapping of str to float."""


class SnapshotStateError(TrainerError):
    """Raised when a snapshot directory is incomplete or unreadable, or has another position than the requested one."""


class GangError(TrainerError):
    """Raised when the ranks of a gang could not connect to each other, or a rank did not take part in an exchange in time."""


class GangNotMetError(GangError):
    """Raised when the ranks of a gang could not connect to each other at the start of a run.

    The next try must use a new process. PyTorch numbers the process groups of a process, including failed ones, and ranks can
    only connect in groups with the same number.
    """


class DriverUsageError(TrainerError):
    """Raised when a method of the driver is called in the wrong order or with arguments that are not allowed."""
