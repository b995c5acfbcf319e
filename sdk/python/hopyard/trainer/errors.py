"""Errors of training code, grouped by how the caller should react.

::

    TrainerError
      UserCodeError         the user's code failed: counts towards `max_failures`; it would fail on any slot
        MetricsError        ... because it returned something that is not a mapping of str to float
      SnapshotStateError    the snapshot is not usable: fetch another copy or use an earlier one
      GangError             the ranks of a gang cannot meet: not caused by the code; the job resumes from its snapshot
        GangNotMetError     ... already at the start: try again in another process
      DriverUsageError      the driver was called wrongly: a bug in the caller, not in the user's code
"""

from __future__ import annotations

import traceback
from enum import StrEnum
from typing import Self

_TRACEBACK_CHARACTERS = 64 * 1024
"""Maximum length of a traceback, since messages carry it. The end is kept, because it names the error."""


class TrainerPhase(StrEnum):
    """The user method that was running."""

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
    """The user's trainer failed.

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
        """Describe a failure. The class documents the parameters."""
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
        """Wrap an exception from the user's code. Leading frames in `caller_file` are removed from the traceback."""
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename == caller_file:
            frames = frames.tb_next
        text = "".join(traceback.format_exception(type(error), error, frames))
        if len(text) > _TRACEBACK_CHARACTERS:
            text = "[the beginning is left out]\n" + text[-_TRACEBACK_CHARACTERS:]
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return cls(trainer=trainer, phase=phase, position=position, reason=reason, traceback_text=text)


class MetricsError(UserCodeError):
    """`train()` or `evaluate()` returned something that is not a mapping of str to float."""


class SnapshotStateError(TrainerError):
    """A snapshot directory is incomplete, unreadable, or has another position than the requested one."""


class GangError(TrainerError):
    """The ranks of a gang could not meet, or a rank did not take part in an exchange in time."""


class GangNotMetError(GangError):
    """The ranks of a gang could not meet. This process may be unable to meet in future, so another process must try.

    PyTorch numbers the groups, including failed ones, and ranks can only meet in groups with the same number.
    """


class DriverUsageError(TrainerError):
    """The driver was called in the wrong order or with arguments that are not allowed."""
