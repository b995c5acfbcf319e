"""The rows of AppStat that follow from the journal of one stream, made again from its records.

The scheduler writes the rows that a batch of events changed in the transaction that appends the records of the batch, and all records
of a batch have the same time. The records therefore tell which events shared a batch. `JournalRows` applies them to a core, and lets
`Changes`, which the scheduler uses, make the rows at the end of each batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from hopyard.v1 import appstat_pb2
from hopyard_engine.core import Core
from hopyard_engine.core.effects import ExperimentChanged, JobChanged, Profiled, ReportAccepted
from hopyard_engine.core.events import Imported
from hopyard_engine.journal.codec import event_of
from hopyard_engine.journal.format import check_sequence
from hopyard_engine.replay import of_experiment
from hopyard_scheduler.runtime.journal import stored
from hopyard_scheduler.runtime.projections import Changes
from hopyard_scheduler.search_plan.projection import PlanRows

RowKey: TypeAlias = tuple[str, ...]
"""The name of the field of `Projection` that contains the row, and the values that identify the row in its table, as text."""


def key_of(message: appstat_pb2.Projection) -> RowKey:
    """Return the key of a row, which must not be of the kinds `statistics` and `deleted_job`.

    Raises:
        ValueError: The message has no such row.
    """
    kind = message.WhichOneof("row")
    match kind:
        case "experiment":
            return kind, message.experiment.id
        case "job":
            return kind, message.job.experiment, message.job.id
        case "statistic":
            one = message.statistic
            return kind, one.experiment, one.job, str(one.report.position), one.report.part
        case "plan_trial":
            return kind, message.plan_trial.experiment, message.plan_trial.job
        case "scaling":
            return kind, message.scaling.training, message.scaling.hardware, str(message.scaling.slots)
        case _:
            raise ValueError(f"a projection of kind {kind} has no key")


class RowTable:
    """Rows by key, with the rules by which AppStat combines the rows that it receives.

    A row replaces the earlier row with its key. Two kinds differ: of several statistics with the same key the first one is kept, and a
    trial of the search plan keeps the snapshots of earlier rows.

    Attributes:
        rows: The rows. Each statistic is a row with the field `statistic`.
    """

    def __init__(self) -> None:
        self.rows: dict[RowKey, appstat_pb2.Projection] = {}

    def add(self, projections: Iterable[appstat_pb2.Projection]) -> None:
        """Add rows in the order in which they apply."""
        for message in projections:
            match message.WhichOneof("row"):
                case "deleted_job":
                    self.rows.pop(("job", message.deleted_job.experiment, message.deleted_job.id), None)
                case "statistic":
                    self.rows.setdefault(key_of(message), message)
                case "statistics":
                    same = message.statistics
                    for report in same.reports:
                        one = appstat_pb2.Statistic(
                            experiment=same.experiment, job=same.job, attempt=same.attempt, report=report
                        )
                        single = appstat_pb2.Projection(statistic=one)
                        self.rows.setdefault(key_of(single), single)
                case "plan_trial":
                    self._add_trial(message)
                case _:
                    self.rows[key_of(message)] = message

    def drop(self, *kinds: str) -> None:
        """Remove all rows of these kinds (names of fields of `Projection`)."""
        self.rows = {key: row for key, row in self.rows.items() if key[0] not in kinds}

    def _add_trial(self, message: appstat_pb2.Projection) -> None:
        trial = appstat_pb2.PlanTrial()
        trial.CopyFrom(message.plan_trial)
        if not trial.path:
            trial.root = ""  # AppStat stores the root with the nodes of the path.
        key = key_of(message)
        before = self.rows.get(key)
        saved = {one.position: one for one in before.plan_trial.snapshots} if before is not None else {}
        saved |= {one.position: one for one in message.plan_trial.snapshots}
        del trial.snapshots[:]
        trial.snapshots.extend(saved[position] for position in sorted(saved))
        if trial.path or trial.snapshots:
            self.rows[key] = appstat_pb2.Projection(plan_trial=trial)
        else:
            self.rows.pop(key, None)


class JournalRows:
    """Makes the rows of one stream from the records of its journal. Call `take` for all records in order, then `table`.

    Attributes:
        length: Number of the last applied record; 0: none.
        experiments: Ids of the experiments of the stream, in the order in which they joined it.
    """

    def __init__(self) -> None:
        self.length = 0
        self.experiments: list[str] = []
        self._core = Core()
        self._table = RowTable()
        self._changes = Changes()
        self._plans = PlanRows()
        self._at: float | None = None

    def take(self, message: appstat_pb2.JournalRecord) -> None:
        """Apply the next record.

        Raises:
            RecordError: This version cannot read the record, or records before it are missing.
            Internal: The record belongs to the cluster.
        """
        record = stored(message)
        check_sequence(record, self.length)
        if message.at != self._at:
            self._end_batch()
        self._at = message.at
        event = of_experiment(event_of(record), record.number)
        if isinstance(event, Imported):
            # An import writes the search plan of its end only, and no scaling profiles.
            self._changes.profiles.clear()
            self._table.drop("plan_trial", "scaling")
            self._plans = PlanRows()
        for effect in self._core.restore(event):
            match effect:
                case JobChanged() | ExperimentChanged() | ReportAccepted() | Profiled():
                    self._changes.note(effect)
        self.length = record.number
        self.experiments = list(self._core.streams[event.stream].experiments)

    def table(self) -> RowTable:
        """Return all rows that follow from the records so far. Further records may be applied afterwards if they begin a batch."""
        self._end_batch()
        return self._table

    def _end_batch(self) -> None:
        if self._at is not None:
            self._table.add(self._changes.rows(self._core, self._at, self._plans))
        self._changes = Changes()
