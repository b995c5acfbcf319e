"""Negative cache: remembers recent failures, so that they are not retried on every request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

AGAIN_SECONDS: Final = (30.0, 600.0)
"""The first pause before a retry and the maximum one, in seconds. The pause doubles with each failure."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A remembered failure.

    Attributes:
        error: The error.
        until: The time before which no retry is made.
        pause: The pause in seconds that led to `until`.
    """

    error: str
    until: float
    pause: float


def failed(before: Failure | None, error: str, now: float) -> Failure:
    """Returns the failure to remember after an error now, given the previous one or None."""
    pause = AGAIN_SECONDS[0] if before is None else min(2 * before.pause, AGAIN_SECONDS[1])
    return Failure(error, now + pause, pause)
