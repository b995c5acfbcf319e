"""A view of the cluster with positions in epochs, for a tuner of jobs whose positions are training units.

A unit trains one configuration on one data partition; an epoch has as many units as there are partitions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from typing_extensions import override

from hopyard.policy import (
    ENDLESS,
    Cluster,
    CurvePoint,
    ExperimentView,
    Incumbent,
    JobState,
    JobView,
    PredictionReady,
)
from hopyard.policy.vocabulary import Command, CreateJob, ForkJob, Predict
from hopyard_policies.base.cluster_proxy import PassingCluster


def terms_in_epochs(terms: ExperimentView, epoch: int) -> ExperimentView:
    """Return the view of an experiment with `max_position` in epochs of `epoch` units, rounded up; the other fields are unchanged."""
    endless = terms.max_position >= ENDLESS
    return terms if endless else replace(terms, max_position=-(-terms.max_position // epoch))


class EpochView(PassingCluster):
    """A cluster view whose positions are epochs. Commands are converted to units and passed to the real cluster.

    Args:
        cluster: The real cluster, with positions in units.
        epoch: The number of units in an epoch, at least 1.
    """

    def __init__(self, cluster: Cluster, epoch: int) -> None:
        super().__init__(cluster)
        self._epoch = epoch
        self._jobs = _Jobs(cluster.jobs, epoch)

    # ------------------------------------------------------------------------------------------------------------- view

    @property
    @override
    def experiment(self) -> ExperimentView:
        return terms_in_epochs(self._cluster.experiment, self._epoch)

    @property
    @override
    def experiments(self) -> Mapping[str, ExperimentView]:
        return {name: terms_in_epochs(terms, self._epoch) for name, terms in self._cluster.experiments.items()}

    @property
    @override
    def jobs(self) -> Mapping[str, JobView]:
        return self._jobs

    @override
    def idle_jobs(self) -> Sequence[JobView]:
        return [self._jobs.of(job) for job in self._cluster.idle_jobs()]

    @override
    def count(self, *states: JobState) -> int:
        return self._cluster.count(*states)

    @override
    def curve(self, job: str) -> Sequence[CurvePoint]:
        """Return a job's learning curve with one point for each epoch: the metrics at its end and the sum of its seconds.

        An unfinished epoch has the metrics of its last report. The result is empty before the first report.
        """
        ends: dict[int, CurvePoint] = {}
        seconds: dict[int, list[float]] = {}
        for point in self._cluster.curve(job):
            number = -(-point.position // self._epoch)
            ends[number] = point
            seconds.setdefault(number, []).append(point.seconds)
        return [CurvePoint(number, ends[number].metrics, math.fsum(seconds[number])) for number in sorted(ends)]

    @override
    def snapshots(self, job: str) -> Sequence[int]:
        """Return the numbers of epochs (1 for the first) at whose ends the job has a snapshot."""
        return [position // self._epoch for position in self._cluster.snapshots(job) if position % self._epoch == 0]

    @property
    @override
    def incumbent(self) -> Incumbent | None:
        found = self._cluster.incumbent
        return found and replace(found, position=-(-found.position // self._epoch))

    # ------------------------------------------------------------------------------------------------------- down-calls

    @override
    def submit(self, command: Command) -> None:
        match command:
            case ForkJob():
                command = replace(command, position=command.position * self._epoch)
            case CreateJob() if command.limit is not None:
                command = replace(command, limit=command.limit * self._epoch)
            case Predict() if "horizon" in command.parameters:
                horizon = command.parameters["horizon"] * self._epoch
                command = replace(command, parameters={**command.parameters, "horizon": horizon})
            case _:
                pass
        self._cluster.submit(command)


def prediction_in_epochs(prediction: PredictionReady, epoch: int) -> PredictionReady:
    """Convert a prediction from units to epochs of `epoch` units by taking the points at the ends of epochs.

    A failed prediction is returned unchanged.
    """
    found = prediction.result
    if found is None:
        return prediction
    ends = [index for index, position in enumerate(found.positions) if position % epoch == 0]
    picked = {
        name: tuple(getattr(found, name)[index] for index in ends)
        for name in ("mean", "deviation", "reaches")
        if getattr(found, name)
    }
    positions = tuple(found.positions[index] // epoch for index in ends)
    return replace(prediction, result=replace(found, positions=positions, **picked))


class _Jobs(Mapping[str, JobView]):
    """Maps job ids to views of the jobs with positions in epochs. The views are created on first access."""

    def __init__(self, jobs: Mapping[str, JobView], epoch: int) -> None:
        self._jobs, self._epoch = jobs, epoch
        self._made: dict[str, JobView] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[str]:
        return iter(self._jobs)

    def __getitem__(self, job: str) -> JobView:
        found = self._made.get(job)
        if found is None:
            found = self._made[job] = self.of(self._jobs[job])
        return found

    def of(self, job: JobView) -> JobView:
        """Return a view of a job with positions in epochs. Its maximum position is rounded up, other positions down."""
        endless = job.max_position >= ENDLESS
        return replace(
            job,
            position=job.position // self._epoch,
            high_water=job.high_water // self._epoch,
            fork_position=job.fork_position // self._epoch,
            max_position=ENDLESS if endless else -(-job.max_position // self._epoch),
        )
