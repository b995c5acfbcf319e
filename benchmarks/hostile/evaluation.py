"""What a good client and a good experiment noticed of a hostile experiment, and whether that is allowed."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

MOST_CALL_SECONDS: Final = 1.6
"""Maximum duration in seconds of a call of the good client."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the good client.

    Attributes:
        name: The method.
        at: When it began, in seconds since the Unix epoch.
        seconds: Its duration.
        error: Why it failed; empty: it succeeded.
    """

    name: str
    at: float
    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class Noticed:
    """What the good client and the good experiment noticed in a period.

    Attributes:
        calls: Number of calls that took place in the period, also in part.
        failed: Number of calls that failed.
        error: The error of the first failed call; empty: none failed.
        longest_call: Seconds of the longest call.
        median_call: Seconds of the median call.
        gaps: Number of gaps between two iterations of the good experiment in the period, also in part.
        longest_gap: Seconds of the longest gap, from the begin of an iteration to the begin of the next one.
        median_gap: Seconds of the median gap.
    """

    calls: int
    failed: int
    error: str
    longest_call: float
    median_call: float
    gaps: int
    longest_gap: float
    median_gap: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a hostile experiment.

    Attributes:
        name: The name of the case.
        pauses: Whether it must be paused. Else its policy must get an error as the answer to its question.
        state: The last state.
        code: The code of the reason of the state; empty: none.
        reason: The reason of the state; if it must not be paused, the error in the answer to its question. Empty: none.
        seconds: Seconds from the first harm to the pause or the answer; None: the plugin did no harm, or there was neither.
    """

    name: str
    pauses: bool
    state: str
    code: str
    reason: str
    seconds: float | None


def noticed(began: float, ended: float, calls: Iterable[Call], iterations: Sequence[float]) -> Noticed:
    """Return what was noticed in a period.

    Args:
        began: Begin of the period, in seconds since the Unix epoch.
        ended: Its end.
        calls: All calls of the good client.
        iterations: When the iterations of the good experiment began, in order. If none has begun since the last of them,
            training stands still until the end of the period.

    Raises:
        ValueError: There was no call or no iteration in the period.
    """
    found = [call for call in calls if call.at <= ended and call.at + call.seconds >= began]
    starts = [*iterations, *([ended] if iterations and iterations[-1] < ended else [])]
    gaps = [after - before for before, after in pairwise(starts) if before <= ended and after >= began]
    if not found or not gaps:
        raise ValueError(f"the period has {len(found)} calls and {len(gaps)} gaps between iterations; both are needed")
    errors = [call.error for call in found if call.error]
    seconds = [call.seconds for call in found]
    return Noticed(
        calls=len(found),
        failed=len(errors),
        error=errors[0] if errors else "",
        longest_call=max(seconds),
        median_call=statistics.median(seconds),
        gaps=len(gaps),
        longest_gap=max(gaps),
        median_gap=statistics.median(gaps),
    )


def problems(name: str, seen: Noticed, outcome: Outcome | None = None) -> list[str]:
    """Return what is not allowed, as sentences; empty: everything is.

    Args:
        name: The name of the period.
        seen: What was noticed in it.
        outcome: What became of the hostile experiment; None: the period has none.
    """
    found = []
    if seen.longest_call > MOST_CALL_SECONDS:
        found.append(f"{name}: a call took {seen.longest_call:.2f} s, allowed are {MOST_CALL_SECONDS:g} s")
    if seen.failed:
        found.append(f"{name}: {seen.failed} calls failed: {seen.error}")
    if outcome is None:
        return found
    if outcome.pauses and outcome.state != "PAUSED":
        found.append(f"{name}: the experiment is {outcome.state} and not PAUSED: {outcome.reason or 'no reason'}")
    if not outcome.pauses and not outcome.reason:
        found.append(f"{name}: the policy did not get an error as its answer; the experiment is {outcome.state}")
    if outcome.seconds is None:
        found.append(f"{name}: the plugin did no harm, or nothing answered it")
    return found
