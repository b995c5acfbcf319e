"""How many slots each job had over time, and how many were used: elastic jobs grow and shrink."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hopyard.plots.data.groups import natural
from hopyard.plots.data.timeline import gantt
from hopyard.plots.model import PlottedRun, Search
from hopyard.policy.vocabulary import RunMode


@dataclass(frozen=True, slots=True)
class GangRun:
    """A run of a job on so many slots at once.

    Attributes:
        job: Whose.
        attempt: Which of the job's runs, from 1.
        slots: How many.
        start: When it was placed, in seconds since the search began.
        end: When the last of them was left; None: it goes on.
        reason: Why it ended, as that of a `Run`.
        mode: As that of a `Run`.
    """

    job: str
    attempt: int
    slots: int
    start: float
    end: float | None
    reason: str | None
    mode: str


@dataclass(frozen=True, slots=True)
class GangPlot:
    """On how many slots each job was.

    Attributes:
        jobs: In the order of their ids, with numbers in them counted.
        runs: In order of their start.
        used: (seconds, slots that had a run from then on), rising.
        most: Slots that any run had at all.
        seconds: Slot-seconds of runs by how many slots these had; what was only measured is none of them.
        time: Where the plot ends.
    """

    jobs: tuple[str, ...]
    runs: tuple[GangRun, ...]
    used: tuple[tuple[float, int], ...]
    most: int
    seconds: dict[int, float]
    time: float


def gather(searches: Sequence[Search]) -> GangPlot:
    """How many slots each job had, of one search.

    Raises:
        InvalidInput: There are several searches, or it does not tell its runs.
        NotFound: Nothing has run yet.
    """
    shown = gantt(searches)
    by_run: dict[tuple[str, int], list[PlottedRun]] = {}
    for run in shown.runs:
        by_run.setdefault((run.job, run.attempt), []).append(run)
    runs = tuple(_gang(ranks) for ranks in by_run.values())
    seconds: dict[int, float] = {}
    for gang in runs:
        if gang.mode != RunMode.PROFILE.value:
            lasted = (shown.time if gang.end is None else gang.end) - gang.start
            seconds[gang.slots] = seconds.get(gang.slots, 0.0) + gang.slots * lasted
    return GangPlot(
        tuple(sorted({run.job for run in runs}, key=natural)),
        runs,
        _used(shown.runs),
        len(shown.slots),
        dict(sorted(seconds.items())),
        shown.time,
    )


def _gang(ranks: Sequence[PlottedRun]) -> GangRun:
    first = ranks[0]
    ends = [rank.end for rank in ranks if rank.end is not None]
    end = max(ends) if len(ends) == len(ranks) else None
    return GangRun(first.job, first.attempt, len(ranks), first.start, end, first.reason, first.mode)


def _used(runs: Sequence[PlottedRun]) -> tuple[tuple[float, int], ...]:
    changes: Counter[float] = Counter()
    for run in runs:
        changes[run.start] += 1
        if run.end is not None:
            changes[run.end] -= 1
    points, count = [(0.0, 0)], 0
    for at in sorted(changes):
        count += changes[at]
        points.append((at, count))
    return tuple(points)
