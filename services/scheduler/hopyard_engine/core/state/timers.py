"""The timers of a stream. Each has a typed key; effects and the journal contain the key as text, its ticket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hopyard.policy.vocabulary import ExperimentId

POLICY: Final = "policy/"
"""Prefix of the tickets of the policy's timers and of its requests to predictors and solvers."""

_BACKOFF: Final = "core/hold/"
_END: Final = "core/end/"
_IDLE: Final = "core/idle/"
_KILL: Final = "core/kill/"
_SHARE: Final = "core/share"


@dataclass(frozen=True, slots=True)
class BackoffTimer:
    """Ends the backoff of a job after a loss or a failure."""

    job: str

    @property
    def ticket(self) -> str:
        """The ticket of this timer: the timer key as text."""
        return _BACKOFF + self.job


@dataclass(frozen=True, slots=True)
class EndTimer:
    """Ends an experiment that has reached its time limit (`Settings.max_seconds`)."""

    experiment: ExperimentId

    @property
    def ticket(self) -> str:
        """The ticket of this timer: the timer key as text."""
        return _END + self.experiment


@dataclass(frozen=True, slots=True)
class IdleTimer:
    """Ends an experiment that had no work for its idle time (`Settings.idle`)."""

    experiment: ExperimentId

    @property
    def ticket(self) -> str:
        """The ticket of this timer: the timer key as text."""
        return _IDLE + self.experiment


@dataclass(frozen=True, slots=True)
class KillTimer:
    """Kills the processes of a run that did not end in time after a command to do so (`Settings.kill_after`)."""

    job: str
    attempt: int

    @property
    def ticket(self) -> str:
        """The ticket of this timer: the timer key as text."""
        return f"{_KILL}{self.job}.{self.attempt}"


@dataclass(frozen=True, slots=True)
class ShareTimer:
    """Preempts runs of a policy that still uses more slots than its reduced share after a time limit (`Settings.grace`)."""

    @property
    def ticket(self) -> str:
        """The ticket of this timer: the timer key as text."""
        return _SHARE


@dataclass(frozen=True, slots=True)
class PolicyTimer:
    """A timer that the policy has set. `name` is chosen by the policy."""

    name: str

    @property
    def ticket(self) -> str:
        """The ticket of this timer: the timer key as text."""
        return POLICY + self.name


TimerKey = BackoffTimer | EndTimer | IdleTimer | KillTimer | ShareTimer | PolicyTimer


def timer_of(ticket: str) -> TimerKey:
    """Returns the timer key that a ticket encodes.

    Raises:
        ValueError: No timer has such a ticket.
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
