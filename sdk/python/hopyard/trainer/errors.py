"""Errors of the training side, classed by what the caller should do.

::

    TrainerError
      UserCodeError         the user's code failed: counts towards `max_failures`; another machine would fail alike
        MetricsError        ... because it returned something that is not a mapping of str to float
      SnapshotStateError    the snapshot is not what was promised: fetch another copy or go further back
      GangError             the ranks of a gang do not come together: not the code's fault, the job goes on from its snapshot
        GangNotMetError     ... from the beginning: in another process
      DriverUsageError      the caller of the driver broke its contract: a bug in the caller, not in the user's code
"""

from __future__ import annotations

import traceback
from enum import StrEnum
from typing import Self

_TRACEBACK_CHARACTERS = 64 * 1024
"""A traceback travels in messages, so it is bounded; its end names the error and is what is kept."""


class TrainerPhase(StrEnum):
    """Which of the user's methods was running."""

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
    """Root of all errors of `hopyard.trainer`."""


class UserCodeError(TrainerError):
    """The user's trainer failed.

    Attributes:
        trainer: qualified name of the trainer class.
        phase: the method that was running.
        position: the job's position when it was called.
        reason: one line: the exception's type and message.
        traceback_text: the user's traceback as text, without the driver's frames; may be empty.
    """

    def __init__(
        self, *, trainer: str, phase: TrainerPhase, position: int, reason: str, traceback_text: str = ""
    ) -> None:
        """Describe a failure; see the class for the parameters."""
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
        """Wrap what the user's code raised; leading frames in `caller_file` are left out of the traceback."""
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
    """A snapshot directory is incomplete, unreadable, or not of the position that was asked for."""


class GangError(TrainerError):
    """The ranks of a gang do not come together, or one of them does not come to an exchange in time."""


class GangNotMetError(GangError):
    """The ranks of a gang did not come together, and this process may never meet others again: another one has to try.

    PyTorch gives each group a number, one that came to nothing included, and ranks only meet in groups of the same number.
    """


class DriverUsageError(TrainerError):
    """The driver was called out of order or with arguments that its contract does not allow."""
