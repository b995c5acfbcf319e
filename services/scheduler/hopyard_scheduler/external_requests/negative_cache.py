"""Negative cache: records of recent failures, so that a failed operation is not repeated on every request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

AGAIN_SECONDS: Final = (30.0, 600.0)
"""The first pause before a retry and the maximum one, in seconds. The pause doubles with each failure."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A recorded failure of an operation.

    Attributes:
        error: The error message.
        until: The time before which the operation must not be repeated, on the clock of the caller.
        pause: The pause in seconds between the failure and `until`.
    """

    error: str
    until: float
    pause: float


def failed(before: Failure | None, error: str, now: float) -> Failure:
    """Return the record of a failure, with the time until which the operation must not be repeated.

    The pause is `AGAIN_SECONDS[0]` after the first failure and doubles with each further one, up to `AGAIN_SECONDS[1]`.

    Args:
        before: The record of the previous consecutive failure; None: this is the first.
        error: The error message.
        now: The present time in seconds, on the clock of the caller.
    """
    pause = AGAIN_SECONDS[0] if before is None else min(2 * before.pause, AGAIN_SECONDS[1])
    return Failure(error, now + pause, pause)
