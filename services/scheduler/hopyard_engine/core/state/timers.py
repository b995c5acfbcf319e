"""The timers of a stream. Each has a typed key; effects and the journal contain the key as text, its ticket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hopyard.policy.vocabulary import ExperimentId

POLICY: Final = "policy/"
"""Prefix of the tickets of the policy's timers and questions."""

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
        """The key as text."""
        return _BACKOFF + self.job


@dataclass(frozen=True, slots=True)
class EndTimer:
    """Ends an experiment whose time has passed (`Settings.max_seconds`)."""

    experiment: ExperimentId

    @property
    def ticket(self) -> str:
        """The key as text."""
        return _END + self.experiment


@dataclass(frozen=True, slots=True)
class IdleTimer:
    """Ends an experiment that had no work for its idle time (`Settings.idle`)."""

    experiment: ExperimentId

    @property
    def ticket(self) -> str:
        """The key as text."""
        return _IDLE + self.experiment


@dataclass(frozen=True, slots=True)
class KillTimer:
    """Kills the processes of a run that did not leave in time (`Settings.kill_after`)."""

    job: str
    attempt: int

    @property
    def ticket(self) -> str:
        """The key as text."""
        return f"{_KILL}{self.job}.{self.attempt}"


@dataclass(frozen=True, slots=True)
class ShareTimer:
    """Preempts runs when the policy did not shrink to a smaller share in time (`Settings.grace`)."""

    @property
    def ticket(self) -> str:
        """The key as text."""
        return _SHARE


@dataclass(frozen=True, slots=True)
class PolicyTimer:
    """A timer set by the policy, with the policy's name for it."""

    name: str

    @property
    def ticket(self) -> str:
        """The key as text."""
        return POLICY + self.name


TimerKey = BackoffTimer | EndTimer | IdleTimer | KillTimer | ShareTimer | PolicyTimer


def timer_of(ticket: str) -> TimerKey:
    """Returns the key of a ticket.

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
