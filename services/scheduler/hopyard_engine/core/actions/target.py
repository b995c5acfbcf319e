"""The experiment's target: whether a job has reached it, with one report or with the mean of its last reports (`target_over`)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice

from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.stream import Stream


def at(stream: Stream, job: Job, position: int, value: float) -> float | None:
    """Return the value or mean with which a new report reaches the target, or None if the report does not reach it.

    The report is compared with the target by its value if the setting `target_over` is 1, else by the mean of the job's last
    `target_over` values, the new one included. With fewer values the target is not reached. A value that is not finite reaches no
    target, nor does a mean that includes one.

    Args:
        stream: The stream of the job.
        job: The job.
        position: Position of the report.
        value: The experiment's metric at this position.
    """
    terms = job.terms
    if terms.target is None or not math.isfinite(value):
        return None
    if terms.target_over == 1:
        return value if stream.sign(value) >= stream.sign(terms.target) else None
    earlier = (point.metrics for point in stream.back(job, position))
    values = list(islice((found[terms.metric] for found in earlier if terms.metric in found), terms.target_over))
    return next((mean for _, mean in _means(stream, job, [(position, value) for value in values])), None)


def ever(stream: Stream, job: Job) -> tuple[int, float] | None:
    """Return the (position, value) with which a job reached the target at any time; None: it never did, or there is no target.

    If the setting `target_over` is 1, this is the job's best report. Else it is the first mean of `target_over` successive values that
    reaches the target, with the position of the last of these values.
    """
    if job.terms.target is None:
        return None
    if job.terms.target_over == 1:
        found = at(stream, job, job.best[1], job.best[0]) if job.best is not None else None
        return (job.best[1], found) if job.best is not None and found is not None else None
    metric = job.terms.metric
    points = ((point.position, point.metrics) for point in stream.curve(job))
    return next(_means(stream, job, [(where, metrics[metric]) for where, metrics in points if metric in metrics]), None)


def _means(stream: Stream, job: Job, values: list[tuple[int, float]]) -> Iterator[tuple[int, float]]:
    """Iterate over the means that reach the target, each with the position of its last value.

    Each mean is over `target_over` successive values (a setting of the experiment). Fewer values give no mean.
    Sums are exact, so the mean of equal values is that value. No mean includes a value that is not finite, or values from
    both sides of such a value.

    Args:
        stream: The stream of the job.
        job: The job.
        values: (position, value) pairs; successive ones are averaged.
    """
    terms = job.terms
    assert terms.target is not None
    window: deque[Fraction] = deque()
    least = Fraction(terms.target) * terms.target_over
    total = Fraction(0)
    for position, value in values:
        if not math.isfinite(value):
            window.clear()
            total = Fraction(0)
            continue
        window.append(Fraction(value))
        total += window[-1]
        if len(window) > terms.target_over:
            total -= window.popleft()
        reached = total >= least if terms.mode == "max" else total <= least
        if reached and len(window) == terms.target_over:
            yield position, float(total / terms.target_over)
