"""What was trained again beside what was recorded, bit for bit."""

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
    """Something that is not what the journal has.

    Attributes:
        event: Number of the recorded event.
        job: Whose.
        position: Where.
        part: Of an evaluation by parts; empty: the whole.
        what: A metric's name, or "snapshot".
        recorded: What stands in the journal.
        found: What came now.
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
        """All of it in a sentence."""
        on = f" on {self.part}" if self.part else ""
        return (
            f"job {self.job} at position {self.position}{on}: {self.what} is recorded as {self.recorded} (event {self.event}); now it "
            f"is {self.found}"
        )


@dataclass(slots=True)
class Compared:
    """What came of one job.

    Attributes:
        job: Its id.
        hyperparameters: Its configuration.
        positions: Positions that were trained again.
        visits: The inputs that it was trained on, in order; empty where it had none.
        reports: Reports that were compared.
        snapshots: Snapshots whose hashes were compared.
        evaluations: Runs that evaluated again.
        differences: What differs, in the order of the recorded events.
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
        """Whether all is the same."""
        return not self.differences


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What a job of the cluster that trained again has come to: its last word at each position, and why it has no more."""

    reports: Mapping[tuple[RunMode, int, str], Metrics]
    snapshots: Mapping[int, str]
    state: str


def compared(chains: Sequence[TrainingChain], again: Recorded) -> list[Compared]:
    """Lays what was trained again beside what was recorded.

    Args:
        chains: What was to be trained again.
        again: The journal of the cluster that did, under the policy `again.Again`.

    Returns:
        By job, in the order in which they began.
    """
    made = _made(again)
    found: dict[str, Compared] = {}
    for chain in chains:
        job = found.setdefault(chain.job, Compared(chain.job, chain.hyperparameters))
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


def first(found: Sequence[Compared]) -> OutcomeDifference | None:
    """The difference that the journal has first: others may follow from it."""
    differences = [one for job in found for one in job.differences]
    return min(differences, key=lambda one: (one.event, one.position), default=None)


def _made(again: Recorded) -> dict[int, JobOutcome]:
    """By chain."""
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


def _reports(job: Compared, run: RecordedRun, end: int, now: JobOutcome) -> None:
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
    """Whether two numbers are equal bit for bit; every NaN is the same, as the journal writes no others."""
    if a is None or b is None:
        return a is b
    return struct.pack("<d", a) == struct.pack("<d", b) or (math.isnan(a) and math.isnan(b))


def _shown(metrics: Metrics, name: str) -> str:
    return repr(metrics[name]) if name in metrics else NOTHING
