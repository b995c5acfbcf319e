"""The further experiments of a simulated group, which join its first experiment: their times and results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hopyard.errors import InvalidInput
from hopyard.policy.vocabulary import ExperimentId, StreamId
from hopyard.policy.vocabulary.reasons import explain
from hopyard_engine.core.events import Event, ExperimentJoined, Operated
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.types import Settings


@dataclass(frozen=True, slots=True)
class JoiningExperiment:
    """An experiment that joins the simulated group. It uses the policy, workload and slots of the group.

    Attributes:
        configurations: The configurations of its jobs, in order. Their number is the number of its jobs.
        at: The time when it joins, in virtual seconds since the beginning of the simulation.
        stopped: The time when it is stopped, likewise, not before `at`; None: it is not stopped.
        alike: For policies that share training: True if equal configurations train as in the first experiment. False:
            they train differently, as with other code, data or seed.
        max_position: The position at which its jobs are complete, at most that of the workload; None: that of the
            workload.
        target: The experiment ends when one of its jobs reports a value at least as good; None: no target.
    """

    configurations: Sequence[Mapping[str, Any]]
    at: float = 0.0
    stopped: float | None = None
    alike: bool = True
    max_position: int | None = None
    target: float | None = None


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    """The result of one experiment of a simulated group. Times are virtual seconds since the beginning of the simulation.

    Attributes:
        slot_seconds: Slot time in seconds that is charged to the experiment.
        created: The time when it joined.
        ended: The time when it ended; None: it has not ended.
        best: Its best finite report; None: there is none.
        best_job: The id of the job with the best report; None: there is none.
        jobs: The ids of its jobs.
        reason: Why it ended, as a sentence; empty: there is no reason.
        reason_code: The code of the reason; None: there is no reason.
    """

    slot_seconds: float
    created: float
    ended: float | None
    best: float | None
    best_job: str | None
    jobs: tuple[str, ...]
    reason: str
    reason_code: str | None


def arrivals(stream: StreamId, settings: Settings, group: Sequence[JoiningExperiment]) -> Iterator[tuple[float, Event]]:
    """Yield the events by which further experiments join a group and are stopped, each with its time in virtual seconds.

    The experiments get the ids "STREAM-2", "STREAM-3", ...

    Args:
        stream: The id of the group.
        settings: The settings of the first experiment.
        group: The further experiments.

    Raises:
        InvalidInput: A further experiment has no configurations, or its `at`, `stopped` or `max_position` is out of its
            range. It is raised when the iteration reaches this experiment.
    """
    for number, one in enumerate(group, 2):
        name = f"{stream}-{number}"
        top = settings.max_position if one.max_position is None else one.max_position
        if not one.configurations:
            raise InvalidInput(f"experiment {number} of the group has no configurations")
        if not 0 <= one.at < math.inf:
            raise InvalidInput(f"experiment {number} of the group joins at {one.at!r}; allowed are seconds >= 0")
        if one.stopped is not None and not one.at <= one.stopped < math.inf:
            raise InvalidInput(
                f"experiment {number} of the group is stopped at {one.stopped!r}; allowed are seconds >= {one.at:g}, when it joins"
            )
        if not 1 <= top <= settings.max_position:
            raise InvalidInput(
                f"max_position of experiment {number} of the group must be in 1..{settings.max_position}, found {top}"
            )
        plan = settings.plan if one.alike or not settings.plan else name
        terms = replace(settings, jobs=len(one.configurations), max_position=top, plan=plan, target=one.target)
        yield one.at, ExperimentJoined(one.at, stream, ExperimentId(name), terms)
        if one.stopped is not None:
            yield one.stopped, Operated(one.stopped, stream, "stop", ExperimentId(name))


def results(stream: Stream) -> Mapping[str, ExperimentResult]:
    """Return the result of each experiment of a group by its id, in the order in which they joined.

    Args:
        stream: The simulated stream of the group.
    """
    return {
        name: ExperimentResult(
            slot_seconds=experiment.slot_seconds,
            created=experiment.created_at,
            ended=experiment.ended_at,
            best=experiment.best[2] if experiment.best is not None else None,
            best_job=experiment.best[0] if experiment.best is not None else None,
            jobs=tuple(job.id for job in stream.jobs.values() if job.experiment is experiment),
            reason=explain(experiment.reason),
            reason_code=experiment.reason.code.value if experiment.reason is not None else None,
        )
        for name, experiment in stream.experiments.items()
    }
