"""Tests of the comparison of stored rows with those that follow from the journal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from hopyard._net.rpc.reasons import set_reason
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard.v1 import appstat_pb2 as pb
from hopyard.v1 import experiment_pb2
from hopyard_scheduler.runtime.journal_rows import key_of
from hopyard_scheduler.runtime.projections import unreadable_row
from hopyard_tools.commands import replay
from hopyard_tools.projections.comparison import compare
from hopyard_tools.projections.stream_check import StreamCheck, with_quarantined

pytestmark = pytest.mark.quick


def rows() -> list[pb.Projection]:
    experiment, job, report, trial, scaling = (pb.Projection() for _ in range(5))
    experiment.experiment.id, experiment.experiment.name, experiment.experiment.slots = "e-1", "e", 2
    experiment.experiment.spec_json = "{" + "x" * 100 + "}"
    experiment.experiment.state = experiment_pb2.EXPERIMENT_STATE_RUNNING
    experiment.experiment.jobs["RUNNING"] = 1
    job.job.experiment, job.job.id, job.job.position = "e-1", "1", 5
    job.job.snapshots.add(position=5, sha256="abc", nodes=["n"])
    report.statistic.experiment, report.statistic.job, report.statistic.report.position = "e-1", "1", 5
    report.statistic.report.metrics.update(loss=0.25, accuracy=math.nan)
    trial.plan_trial.experiment, trial.plan_trial.job = "e-1", "1"
    trial.plan_trial.path.add(node="n", end=5, values_json="{}")
    scaling.scaling.CopyFrom(
        pb.Scaling(training="t", hardware="h", slots=2, seconds=1.0, experiment="e-1", job="1", at=7.0)
    )
    return [experiment, job, report, trial, scaling]


def told(found: Sequence[pb.Projection], damaged: Sequence[pb.DamagedRow] = ()) -> list[str]:
    expected = {key_of(row): row for row in rows()}
    return [str(one) for one in compare(expected, [(key_of(row), row) for row in found], damaged, ("e-1",))]


def test_equal_rows_do_not_differ() -> None:
    assert told(rows()) == []


def metric(found: list[pb.Projection]) -> None:
    found[2].statistic.report.metrics["loss"] = 0.75


def not_nan(found: list[pb.Projection]) -> None:
    found[2].statistic.report.metrics["accuracy"] = 1.0


def more_metrics(found: list[pb.Projection]) -> None:
    found[2].statistic.report.metrics["other"] = 1.0


def state(found: list[pb.Projection]) -> None:
    found[0].experiment.state = experiment_pb2.EXPERIMENT_STATE_PAUSED


def count(found: list[pb.Projection]) -> None:
    del found[0].experiment.jobs["RUNNING"]


def text(found: list[pb.Projection]) -> None:
    found[0].experiment.spec_json = "{" + "x" * 60 + "y" + "x" * 39 + "}"


def snapshot(found: list[pb.Projection]) -> None:
    found[1].job.snapshots[0].nodes[0] = "m"


def no_snapshot(found: list[pb.Projection]) -> None:
    del found[1].job.snapshots[:]


def plan(found: list[pb.Projection]) -> None:
    found[3].plan_trial.path[0].end = 6


def profile(found: list[pb.Projection]) -> None:
    found[4].scaling.seconds = 2.0


def older_profile(found: list[pb.Projection]) -> None:
    found[4].scaling.experiment, found[4].scaling.at = "other", 6.0


def removed(found: list[pb.Projection]) -> None:
    del found[2]


def extra(found: list[pb.Projection]) -> None:
    found.append(pb.Projection(statistic=pb.Statistic(experiment="e-1", job="1")))
    found[-1].statistic.report.position, found[-1].statistic.report.part = 6, "p"


def doubled(found: list[pb.Projection]) -> None:
    found.append(found[1])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (metric, ["job 1 of e-1, report at 5, metrics[loss]: found 0.75, the journal gives 0.25"]),
        (not_nan, ["job 1 of e-1, report at 5, metrics[accuracy]: found 1.0, the journal gives nan"]),
        (more_metrics, ["job 1 of e-1, report at 5, metrics[other]: found 1.0, the journal gives nothing"]),
        (state, ["e-1, state: found 'EXPERIMENT_STATE_PAUSED', the journal gives 'EXPERIMENT_STATE_RUNNING'"]),
        (count, ["e-1, jobs[RUNNING]: found nothing, the journal gives 1"]),
        (
            text,
            [f"e-1, spec_json: found '...{'x' * 20}y{'x' * 39}', the journal gives '...{'x' * 60}'"],
        ),
        (snapshot, ["job 1 of e-1, snapshots[0].nodes[0]: found 'm', the journal gives 'n'"]),
        (plan, ["job 1 of e-1, search plan, path[0].end: found 6, the journal gives 5"]),
        (profile, ["job 1 of e-1, scaling profile, seconds: found 2.0, the journal gives 1.0"]),
        (older_profile, ["job 1 of e-1, scaling profile: found an older one of other, the journal gives a row"]),
        (removed, ["job 1 of e-1, report at 5: found nothing, the journal gives a row"]),
        (extra, ["job 1 of e-1, report at 6 on p: found a row, the journal gives nothing"]),
        (doubled, ["job 1 of e-1: found the row twice, the journal gives it once"]),
    ],
)
def test_a_difference_is_named_with_its_place(
    change: Callable[[list[pb.Projection]], None], expected: list[str]
) -> None:
    found = rows()
    change(found)
    assert told(found) == expected


def test_a_removed_snapshot_is_named() -> None:
    found = rows()
    no_snapshot(found)
    assert "job 1 of e-1, snapshots[0].sha256: found nothing, the journal gives 'abc'" in told(found)


def test_a_newer_profile_of_another_experiment_is_no_difference() -> None:
    found = rows()
    found[4].scaling.experiment, found[4].scaling.at, found[4].scaling.seconds = "other", 8.0, 3.0
    found.append(pb.Projection(scaling=pb.Scaling(training="t", hardware="h", slots=3, experiment="third", at=1.0)))
    assert told(found) == []


def test_an_unreadable_row_is_named_once() -> None:
    found = [row for row in rows() if not row.HasField("job")]
    damaged = pb.DamagedRow(row="job", experiment="e-1", job="1", error="what it is")
    assert told(found, [damaged]) == ["job 1 of e-1: found an unreadable row (what it is), the journal gives a row"]


def test_an_experiment_that_waits_for_its_journal_differs_only_otherwise() -> None:
    found = rows()
    set_reason(found[0].experiment, Reason(ReasonCode.NOTHING_LEFT))
    found[0] = unreadable_row(found[0].experiment, "journal of e-1: record 3 is missing")
    assert told(found) == []
    found[0].experiment.slots = 3
    assert told(found) == ["e-1, slots: found 3, the journal gives 2"]


def test_the_rows_of_a_quarantined_experiment_are_those_that_are_stored() -> None:
    expected, stored = ({key_of(row): row for row in rows()} for _ in range(2))
    stored["experiment", "e-1"].experiment.state = experiment_pb2.EXPERIMENT_STATE_FAILED
    stored["job", "e-1", "1"].job.position = 4
    assert with_quarantined(expected, stored) == expected
    set_reason(stored["experiment", "e-1"].experiment, Reason.of(ReasonCode.ENGINE_ERROR, event="E", error="no"))
    found = with_quarantined(expected, stored)
    assert found.keys() == expected.keys()
    assert found["experiment", "e-1"] == stored["experiment", "e-1"]
    assert found["job", "e-1", "1"].job.position == 4
    metric([*stored.values()])
    report = ("statistic", "e-1", "1", "5", "")
    assert found[report].statistic.report.metrics["loss"] == 0.25


def test_the_document_of_a_replay_tells_damage_from_differences() -> None:
    assert replay._rows_document(StreamCheck("x", damage="record 7 is missing")) == {
        "count": 0,
        "equal": False,
        "damage": "record 7 is missing",
        "differences": [],
    }
    assert replay._rows_document(StreamCheck("x", length=1))["damage"] is None
