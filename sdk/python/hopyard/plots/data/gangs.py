"""Data of the plot `gangs`: the number of slots of each job over time, which varies for elastic jobs, and the total number in use."""

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
    """One run of a job, on one or several slots at the same time.

    Attributes:
        job: Id of the job.
        attempt: Number of the run within the job, from 1.
        slots: Number of slots of the run.
        start: When the run was placed on its slots, in seconds since the search began.
        end: When the run left the last of its slots, in seconds since the search began; None: it has not ended.
        reason: Why the run ended, as in `PlottedRun.reason`; None: it has not ended, or the reason is unknown.
        mode: Mode of the run, as in `PlottedRun.mode`.
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
    """Data of the plot `gangs`: the number of slots of each job over time.

    Attributes:
        jobs: Ids of the jobs in natural order (`natural`).
        runs: The runs, ordered by start.
        used: Pairs (seconds since the search began, number of slots that have a run from then on), ordered by time.
        most: Number of slots that had at least one run during the search, not necessarily at the same time.
        seconds: Slot-seconds (number of slots x seconds) spent in runs of each size; the key is the number of slots of a run. Runs of
            mode PROFILE are not included.
        time: Right end of the x axis, in seconds since the search began.
    """

    jobs: tuple[str, ...]
    runs: tuple[GangRun, ...]
    used: tuple[tuple[float, int], ...]
    most: int
    seconds: dict[int, float]
    time: float


def gather(searches: Sequence[Search]) -> GangPlot:
    """Return the data of the plot `gangs` for one search: the number of slots of each job, and of all jobs, over time.

    Args:
        searches: Exactly one search.

    Raises:
        InvalidInput: There are several searches, or the source of the search does not provide runs (`Search.runs` is None).
        NotFound: The source provides runs, but none has started yet.
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
