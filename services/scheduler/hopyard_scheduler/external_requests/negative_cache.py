"""What could not be done a short while ago is not tried again with each question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

AGAIN_SECONDS: Final = (30.0, 600.0)
"""It is not tried again for so long; longer each time, up to so long."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Something could not be done; it is tried again at `until`, and after `pause` more seconds if it fails again."""

    error: str
    until: float
    pause: float


def failed(before: Failure | None, error: str, now: float) -> Failure:
    """A failure now, after one before or the first one."""
    pause = AGAIN_SECONDS[0] if before is None else min(2 * before.pause, AGAIN_SECONDS[1])
    return Failure(error, now + pause, pause)
