"""The timers of a stream. A timer is identified by a typed key. Effects and the journal contain the key as text, its ticket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hopyard.policy.vocabulary import ExperimentId

POLICY: Final = "policy/"
"""Prefix of the internal tickets of the policy's timers and of its requests to predictors and solvers."""

_BACKOFF: Final = "core/hold/"
_END: Final = "core/end/"
_IDLE: Final = "core/idle/"
_KILL: Final = "core/kill/"
_SHARE: Final = "core/share"


@dataclass(frozen=True, slots=True)
class BackoffTimer:
    """Key of the timer that ends the backoff of job `job` after losses or failures."""

    job: str

    @property
    def ticket(self) -> str:
        """The key as text, for effects and the journal."""
        return _BACKOFF + self.job


@dataclass(frozen=True, slots=True)
class EndTimer:
    """Key of the timer that ends `experiment` when its time limit (`Settings.max_seconds`) has passed."""

    experiment: ExperimentId

    @property
    def ticket(self) -> str:
        """The key as text, for effects and the journal."""
        return _END + self.experiment


@dataclass(frozen=True, slots=True)
class IdleTimer:
    """Key of the timer that ends `experiment` as COMPLETED when it had nothing to do for `Settings.idle` seconds."""

    experiment: ExperimentId

    @property
    def ticket(self) -> str:
        """The key as text, for effects and the journal."""
        return _IDLE + self.experiment


@dataclass(frozen=True, slots=True)
class KillTimer:
    """Key of the timer that kills the processes of a run which do not end in time after the command to end (`Settings.kill_after`).

    Attributes:
        job: Id of the job.
        attempt: Attempt number of the run.
    """

    job: str
    attempt: int

    @property
    def ticket(self) -> str:
        """The key as text, for effects and the journal."""
        return f"{_KILL}{self.job}.{self.attempt}"


@dataclass(frozen=True, slots=True)
class ShareTimer:
    """Key of the timer of the deadline (`Settings.grace`) for returning slots above a reduced share. After it, runs are preempted."""

    @property
    def ticket(self) -> str:
        """The key as text, for effects and the journal."""
        return _SHARE


@dataclass(frozen=True, slots=True)
class PolicyTimer:
    """Key of a timer that the policy has set. The policy chose `name`, and a timer with the same name in the stream is replaced."""

    name: str

    @property
    def ticket(self) -> str:
        """The key as text, for effects and the journal."""
        return POLICY + self.name


TimerKey = BackoffTimer | EndTimer | IdleTimer | KillTimer | ShareTimer | PolicyTimer


def timer_of(ticket: str) -> TimerKey:
    """Return the timer key that a ticket encodes.

    Raises:
        ValueError: The text is not the ticket of a timer.
    """
    if ticket == _SHARE:
        return ShareTimer()
    for prefix, kind in ((POLICY, PolicyTimer), (_BACKOFF, BackoffTimer), (_END, EndTimer), (_IDLE, IdleTimer)):
        if ticket.startswith(prefix):
            return kind(ExperimentId(ticket.removeprefix(prefix)))
    job, _, attempt = ticket.removeprefix(_KILL).rpartition(".")
    if ticket.startswith(_KILL) and job and attempt.isdecimal():
        return KillTimer(job, int(attempt))
    raise ValueError(f"no timer has the ticket {ticket!r}")
