"""Tests of `JournalRows`: the rows made from records equal those that the scheduler wrote batch by batch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hopyard.policy.vocabulary import RunEndReason
from hopyard.v1 import appstat_pb2
from hopyard_engine.core import Core
from hopyard_engine.core.effects import ExperimentChanged, JobChanged, Profiled, ReportAccepted
from hopyard_engine.core.events import Event, StreamCreated
from hopyard_engine.journal.codec import encode, kind_of
from hopyard_engine.journal.format import FORMAT, RecordError
from hopyard_scheduler.runtime.journal_rows import JournalRows, RowTable, key_of
from hopyard_scheduler.runtime.projections import Changes
from hopyard_scheduler.search_plan.projection import PlanRows
from tests.unit.core.rig import Rig, snapshot

pytestmark = pytest.mark.quick

PAYLOAD = {"name": "x", "spec": "{}", "bundle": "", "interpreter": "", "request": "r"}


def journal() -> list[Event]:
    """Return the events of an experiment with several runs, a loss and an end."""
    rig = Rig(capacity=2)
    rig.create()
    rig.create(0.2)
    rig.start()
    rig.start("2", "n1/1")
    rig.kept(2, 4)
    rig.report(1, 0.25, "2")
    rig.expire("n1")
    rig.join("n2", 1)
    rig.start("1", "n2/0")
    rig.report(5, float("nan"))
    rig.taken(5)
    rig.ended(RunEndReason.UNTIL, 6, snapshot(6))
    created, *others = rig.journal
    assert isinstance(created, StreamCreated)
    return [replace(created, payload=PAYLOAD), *others]


def written(events: list[Event], batch: int) -> tuple[list[appstat_pb2.JournalRecord], RowTable]:
    """Return the records of events, and the rows that a scheduler writes that handles `batch` events at a time."""
    core, table, plans, records = Core(), RowTable(), PlanRows(), []
    for start in range(0, len(events), batch):
        at, changes = 1000.0 + start, Changes()
        for number, event in enumerate(events[start : start + batch], start + 1):
            for effect in core.restore(event):  # type: ignore[arg-type]
                if isinstance(effect, JobChanged | ExperimentChanged | ReportAccepted | Profiled):
                    changes.note(effect)
            records.append(
                appstat_pb2.JournalRecord(
                    stream="x", position=number, at=at, kind=kind_of(event), payload=encode(event), version=FORMAT
                )
            )
        table.add(changes.rows(core, at, plans))
    return records, table


def made(records: list[appstat_pb2.JournalRecord]) -> JournalRows:
    found = JournalRows()
    for record in records:
        found.take(record)
    return found


@pytest.mark.parametrize("batch", [1, 3, 1000])
def test_the_rows_are_those_that_the_scheduler_wrote(batch: int) -> None:
    records, table = written(journal(), batch)
    found = made(records)
    assert found.table().rows.keys() == table.rows.keys()
    for key, row in table.rows.items():
        assert str(found.table().rows[key]) == str(row)
    assert (found.length, found.experiments) == (len(records), ["x"])
    assert {key[0] for key in table.rows} == {"experiment", "job", "statistic"}


def test_the_rows_so_far_do_not_disturb_those_of_later_records() -> None:
    records, table = written(journal(), 2)
    found = JournalRows()
    for record in records:
        found.take(record)
        if record.position % 2 == 0:
            found.table()
    assert {key: str(row) for key, row in found.table().rows.items()} == {
        key: str(row) for key, row in table.rows.items()
    }


def test_a_missing_record_is_refused() -> None:
    records, _ = written(journal(), 1)
    found = made(records[:3])
    with pytest.raises(RecordError, match="missing"):
        found.take(records[4])


def statistic(position: int, seconds: float) -> appstat_pb2.Projection:
    row = appstat_pb2.Projection()
    row.statistics.experiment, row.statistics.job = "e", "1"
    row.statistics.reports.add(position=position, seconds=seconds)
    return row


def trial(*snapshots: int, path: int = 0, root: str = "r") -> appstat_pb2.Projection:
    row = appstat_pb2.PlanTrial(experiment="e", job="1", root=root)
    row.snapshots.extend(appstat_pb2.PlanSnapshot(position=position, sha256=str(position)) for position in snapshots)
    if path:
        row.path.add(node="n", end=path)
    return appstat_pb2.Projection(plan_trial=row)


def test_the_first_statistic_and_the_last_of_other_rows_is_kept() -> None:
    table = RowTable()
    table.add([statistic(1, 2.0), statistic(1, 3.0), statistic(2, 4.0)])
    kept = [row.statistic.report.seconds for row in table.rows.values()]
    assert kept == [2.0, 4.0]
    first, second = appstat_pb2.Projection(), appstat_pb2.Projection()
    first.job.experiment = second.job.experiment = "e"
    first.job.id = second.job.id = "1"
    second.job.position = 3
    table.add([first, second])
    assert table.rows["job", "e", "1"].job.position == 3
    gone = appstat_pb2.Projection(deleted_job=appstat_pb2.DeletedJob(experiment="e", id="1"))
    table.add([gone, gone])
    assert ("job", "e", "1") not in table.rows


def test_a_trial_keeps_its_earlier_snapshots_and_its_last_path() -> None:
    table = RowTable()
    table.add([trial(4, path=4), trial(2, 6, path=8)])
    (row,) = table.rows.values()
    assert [one.position for one in row.plan_trial.snapshots] == [2, 4, 6]
    assert [one.end for one in row.plan_trial.path] == [8]
    assert row.plan_trial.root == "r"
    table.add([trial()])
    assert next(iter(table.rows.values())).plan_trial.root == ""
    empty = RowTable()
    empty.add([trial(path=4), trial()])
    assert empty.rows == {}


def test_a_row_without_a_key_is_refused() -> None:
    with pytest.raises(ValueError, match="kind None has no key"):
        key_of(appstat_pb2.Projection())


def test_reports_of_the_rig_have_the_time_of_their_batch() -> None:
    records, _ = written(journal(), 1)
    rows = made(records).table().rows
    times = {key[3]: row.statistic.report.at for key, row in rows.items() if key[0] == "statistic" and key[2] == "1"}
    assert set(times) == {"2", "4", "5"}
    assert all(at in {record.at for record in records} for at in times.values())
