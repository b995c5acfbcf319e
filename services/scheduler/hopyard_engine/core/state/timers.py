"""The timers of a stream. Each has a typed key; effects and journals hold the text of the key, its ticket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hopyard.policy.vocabulary import ExperimentId

POLICY: Final = "policy/"
"""Begins the tickets of the policy's timers and questions."""

_BACKOFF: Final = "core/hold/"
_END: Final = "core/end/"
_IDLE: Final = "core/idle/"
_KILL: Final = "core/kill/"
_SHARE: Final = "core/share"


@dataclass(frozen=True, slots=True)
class BackoffTimer:
    """A job may start again after a loss or a failure."""

    job: str

    @property
    def ticket(self) -> str:
        """The text of the key."""
        return _BACKOFF + self.job


@dataclass(frozen=True, slots=True)
class EndTimer:
    """The time of an experiment is over (`Settings.max_seconds`)."""

    experiment: ExperimentId

    @property
    def ticket(self) -> str:
        """The text of the key."""
        return _END + self.experiment


@dataclass(frozen=True, slots=True)
class IdleTimer:
    """An experiment that is open for requests had nothing to do for its idle time (`Settings.idle`)."""

    experiment: ExperimentId

    @property
    def ticket(self) -> str:
        """The text of the key."""
        return _IDLE + self.experiment


@dataclass(frozen=True, slots=True)
class KillTimer:
    """The processes of a run that were told to leave are killed (`Settings.kill_after`)."""

    job: str
    attempt: int

    @property
    def ticket(self) -> str:
        """The text of the key."""
        return f"{_KILL}{self.job}.{self.attempt}"


@dataclass(frozen=True, slots=True)
class ShareTimer:
    """The policy had its time to shrink to a smaller share (`Settings.grace`): runs are preempted."""

    @property
    def ticket(self) -> str:
        """The text of the key."""
        return _SHARE


@dataclass(frozen=True, slots=True)
class PolicyTimer:
    """A timer that the policy set, with the policy's name for it."""

    name: str

    @property
    def ticket(self) -> str:
        """The text of the key."""
        return POLICY + self.name


TimerKey = BackoffTimer | EndTimer | IdleTimer | KillTimer | ShareTimer | PolicyTimer


def timer_of(ticket: str) -> TimerKey:
    """The key with this text.

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
