"""Checks the training of models that hop: each run against the snapshot from which it started.

A unit that was not saved before its node died is trained again, perhaps on another partition. Its recorded report stays, and later
reports belong to the weights that continued. So each run is checked by itself: its reports follow from the history of the snapshot from
which it started. A recorded report must be one of these.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from disturbance.program import BEGIN, CHAIN, PARTITION, advance, metrics
from hopyard.client.types import Job, JobState, Statistic
from hopyard.policy.vocabulary import RunKey, RunMode
from hopyard_engine.core import Core
from hopyard_engine.core.effects import Send, Start
from hopyard_engine.core.events import Ended, Event, Reports, RunMessage, SnapshotTaken
from hopyard_engine.journal.codec import decode

SCRATCH: Final = ""
"""The snapshot of a run that begins at position 0."""


@dataclass(slots=True)
class Unit:
    """A run that trains.

    Attributes:
        job: Id of the job.
        snapshot: SHA-256 of the snapshot from which it started.
        reports: Position and metrics of each report, in order.
        saved: The position of each snapshot that it took, by SHA-256.
    """

    job: str
    snapshot: str
    reports: list[tuple[int, Mapping[str, float]]] = field(default_factory=list)
    saved: dict[str, int] = field(default_factory=dict)


def events_of(database: Path, stream: str) -> list[Event]:
    """Return the events of an experiment in AppStat's database, in order."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        rows = connection.execute("SELECT kind, payload FROM journal WHERE stream = ? ORDER BY position", (stream,))
        return [decode(kind, payload) for kind, payload in rows]


def units_of(events: Iterable[Event]) -> list[Unit]:
    """Return all runs that trained, in the order in which they were started."""
    core, units = Core(), dict[RunKey, Unit]()
    for event in events:
        for effect in core.restore(event):  # type: ignore[arg-type]
            if isinstance(effect, Send) and isinstance(effect.body, Start) and effect.body.mode is RunMode.TRAIN:
                snapshot = effect.body.snapshot
                units[effect.run] = Unit(effect.run.job, SCRATCH if snapshot is None else snapshot.sha256)
        if isinstance(event, RunMessage):
            unit = units.get(RunKey(event.stream, event.job, event.attempt, event.rank))
            if unit is not None:
                _take(unit, event.body)
    return list(units.values())


def _take(unit: Unit, body: object) -> None:
    match body:
        case Reports(reports=reports):
            unit.reports += [(one.position, one.metrics) for one in reports]
        case SnapshotTaken(snapshot=snapshot) | Ended(snapshot=snapshot) if snapshot is not None:
            unit.saved[snapshot.sha256] = snapshot.position
        case _:
            pass


class Histories:
    """The partitions of each snapshot and of each run, and whether all reports follow from them.

    Attributes:
        wrong: Messages about what does not follow.
    """

    def __init__(self, values: Mapping[str, Mapping[str, Any]], partitions: int) -> None:
        self.wrong: list[str] = []
        self._values = values
        self._partitions = partitions
        self._snapshots: dict[tuple[str, str], tuple[int, ...]] = {}
        self._right: dict[tuple[str, int], set[float]] = defaultdict(set)

    def add(self, unit: Unit) -> None:
        """Check a run. The run that took its snapshot must have been added before."""
        history = self._snapshots.get((unit.job, unit.snapshot)) if unit.snapshot else ()
        if history is None:
            self.wrong.append(f"job {unit.job} started from the snapshot {unit.snapshot}, which none of its runs took")
            return
        for position, found in unit.reports:
            if position != len(history) + 1:
                self.wrong.append(f"job {unit.job} reported {position} after {len(history)}")
                return
            history = (*history, int(found[PARTITION]))
            expected = metrics(self._chain(unit.job, history), position, self._values[unit.job], history[-1])
            if dict(found) != expected:
                self.wrong.append(f"job {unit.job} reported {dict(found)} after {history}; alone it reports {expected}")
            begin = (position - 1) // self._partitions * self._partitions
            if len(set(history[begin:])) < position - begin:
                self.wrong.append(f"job {unit.job} at {position} has visited {history[begin:]} in one epoch")
            self._right[unit.job, position].add(expected[CHAIN])
        for sha256, position in unit.saved.items():
            self._snapshots[unit.job, sha256] = history[:position]

    def check_recorded(self, statistic: Statistic) -> None:
        """Check that a recorded report is that of a run."""
        at, found = statistic.report.position, statistic.report.metrics
        if found[CHAIN] not in self._right[statistic.job, at]:
            self.wrong.append(f"job {statistic.job} has the report {dict(found)} at {at}, which is not that of a run")

    def check_end(self, job: Job, length: int) -> None:
        """Check that a complete job has weights that were trained to its end."""
        if job.state is JobState.COMPLETED:
            ends = [len(history) for (owner, _), history in self._snapshots.items() if owner == job.id]
            if length not in ends:
                self.wrong.append(f"job {job.id} is complete, but no snapshot of it is at {length}")

    def _chain(self, job: str, history: Sequence[int]) -> bytes:
        chain = BEGIN
        for position, partition in enumerate(history, 1):
            chain = advance(chain, position, self._values[job], partition)
        return chain


def wrong_hops(
    units: Sequence[Unit], jobs: Sequence[Job], statistics: Sequence[Statistic], length: int, partitions: int
) -> list[str]:
    """Return a message about each report that does not follow from the history of its weights, and about each wrong history."""
    histories = Histories({job.id: job.hyperparameters for job in jobs}, partitions)
    for unit in units:
        histories.add(unit)
    for statistic in statistics:
        histories.check_recorded(statistic)
    for job in jobs:
        histories.check_end(job, length)
    return histories.wrong
