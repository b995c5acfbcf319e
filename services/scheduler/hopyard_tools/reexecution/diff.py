"""Compares the results of repeated training with the recorded results, bit for bit."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hopyard.policy.vocabulary import Metrics, RunMode
from hopyard_tools.reexecution.chains import TrainingChain
from hopyard_tools.reexecution.extract import NumberedMessage, Recorded, RecordedRun

NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class OutcomeDifference:
    """A result of the repeated training that differs from the recorded result.

    Attributes:
        event: The number of the event that recorded the result.
        job: The id of the job.
        position: The position of the result.
        part: The data partition, if the evaluation was divided into one run for each partition; empty: the whole
            evaluation, or a training report.
        what: The name of a metric, or "snapshot", or "its report" if the repeated training has no such report.
        recorded: The recorded value, as text; for "its report" the text "there".
        found: The value of the repeated training, as text; for "its report" the text "not there" with the state of the job.
    """

    event: int
    job: str
    position: int
    part: str
    what: str
    recorded: str
    found: str

    @property
    def text(self) -> str:
        """The difference as a sentence."""
        on = f" on {self.part}" if self.part else ""
        return (
            f"job {self.job} at position {self.position}{on}: {self.what} is recorded as {self.recorded} (event {self.event}); now it "
            f"is {self.found}"
        )


@dataclass(slots=True)
class JobComparison:
    """The comparison of one job's repeated training with the recorded training.

    Attributes:
        job: The id of the job.
        hyperparameters: The configuration of the job.
        positions: The number of repeated positions.
        visits: The inputs (data partitions) on which it was trained, in order; empty without inputs.
        reports: The number of compared reports.
        snapshots: The number of compared snapshot hashes.
        evaluations: The number of repeated evaluations.
        differences: The differences, in the order of the recorded events.
    """

    job: str
    hyperparameters: Mapping[str, Any]
    positions: int = 0
    visits: list[str] = field(default_factory=list)
    reports: int = 0
    snapshots: int = 0
    evaluations: int = 0
    differences: list[OutcomeDifference] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """True if all compared results are equal."""
        return not self.differences


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The results of a job in the cluster that repeats the training.

    Attributes:
        reports: The last reported metrics by run mode, position and data partition (empty: a training report, or an
            evaluation that is not divided by partitions).
        snapshots: The hash of the last snapshot by position.
        state: The final state of the job with its reason, as a sentence.
    """

    reports: Mapping[tuple[RunMode, int, str], Metrics]
    snapshots: Mapping[int, str]
    state: str


def compared(chains: Sequence[TrainingChain], again: Recorded) -> list[JobComparison]:
    """Compare the repeated training with the recorded training.

    Args:
        chains: The repeated chains: sequences of recorded runs, each started from a snapshot of the preceding run.
        again: The journal of the cluster that repeated them with the policy `recorded_policy.RecordedPolicy`.

    Returns:
        The comparison of each job, in the order in which the jobs started. A recorded report that the repetition does
        not have is a difference. A recorded snapshot that it does not have is not compared.
    """
    made = _made(again)
    found: dict[str, JobComparison] = {}
    for chain in chains:
        job = found.setdefault(chain.job, JobComparison(chain.job, chain.hyperparameters))
        now = made.get(chain.number, JobOutcome({}, {}, "it was not begun"))
        for stretch in chain.stretches:
            run = stretch.run
            job.positions += stretch.end - run.start
            job.visits += [name for name in run.inputs if name]
            _reports(job, run, stretch.end, now)
            for position, taken in sorted(run.snapshots.items()):
                if taken.value and position <= stretch.end and position in now.snapshots:
                    job.snapshots += 1
                    if now.snapshots[position] != taken.value:
                        said = taken.value[:12], now.snapshots[position][:12]
                        job.differences.append(OutcomeDifference(taken.event, run.job, position, "", "snapshot", *said))
        for run in chain.evaluations:
            job.evaluations += 1
            _reports(job, run, run.start, now)
    for job in found.values():
        job.differences.sort(key=lambda one: (one.event, one.position))
    return list(found.values())


def first(found: Sequence[JobComparison]) -> OutcomeDifference | None:
    """Return the difference whose recorded event comes first in the journal; None: all results are equal.

    Other differences may be consequences of this one.

    Args:
        found: The comparison of each job.
    """
    differences = [one for job in found for one in job.differences]
    return min(differences, key=lambda one: (one.event, one.position), default=None)


def _made(again: Recorded) -> dict[int, JobOutcome]:
    """Return the results of the cluster that repeated the training, by number of the chain.

    A chain is a sequence of recorded runs that one job repeats. Chains without a job are missing.

    Args:
        again: The journal of this cluster.
    """
    stream = again.stream
    if stream is None:
        return {}
    by_job: dict[str, list[RecordedRun]] = {}
    for run in again.runs:
        by_job.setdefault(run.job, []).append(run)
    found = {}
    for job in stream.jobs.values():
        runs = by_job.get(job.id, [])
        reports = {(r.mode, *where): noted.value for r in runs for where, noted in r.reports.items()}
        snapshots = {position: noted.value for r in runs for position, noted in r.snapshots.items()}
        if job.priority is not None:
            found[round(-job.priority)] = JobOutcome(reports, snapshots, f"job is {job.state.value}: {job.reason}")
    return found


def _reports(job: JobComparison, run: RecordedRun, end: int, now: JobOutcome) -> None:
    for (position, part), noted in sorted(run.reports.items()):
        if run.mode is RunMode.TRAIN and not run.start < position <= end:
            continue
        job.reports += 1
        there = now.reports.get((run.mode, position, part))
        job.differences += _metrics(run.job, position, part, noted, there, now.state)


def _metrics(
    job: str, position: int, part: str, noted: NumberedMessage[Metrics], now: Metrics | None, state: str
) -> list[OutcomeDifference]:
    if now is None:
        return [OutcomeDifference(noted.event, job, position, part, "its report", "there", f"not there ({state})")]
    return [
        OutcomeDifference(noted.event, job, position, part, name, _shown(noted.value, name), _shown(now, name))
        for name in sorted({*noted.value, *now})
        if not same_bits(noted.value.get(name), now.get(name))
    ]


def same_bits(a: float | None, b: float | None) -> bool:
    """Return True if two numbers are equal bit for bit, or both are None.

    All NaN values are equal, because the journal stores only one kind of NaN.
    """
    if a is None or b is None:
        return a is b
    return struct.pack("<d", a) == struct.pack("<d", b) or (math.isnan(a) and math.isnan(b))


def _shown(metrics: Metrics, name: str) -> str:
    return repr(metrics[name]) if name in metrics else NOTHING
