from __future__ import annotations

import json
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard._net.rpc.values import hyperparameters_to_proto
from hopyard.errors import DataLoss, InvalidInput
from hopyard.v1 import appstat_pb2, common_pb2, experiment_pb2
from hopyard_appstat.projections import ProjectedRows
from hopyard_appstat.rows import (
    message_of,
    metrics_from_json,
    metrics_to_json,
    statistic_of,
    statistic_row,
    stored_message,
)

pytestmark = pytest.mark.quick


def bits(value: float) -> bytes:
    return b"nan" if math.isnan(value) else struct.pack("<d", value)


@pytest.mark.merge
@given(st.dictionaries(st.text(max_size=8), st.floats(), max_size=5))
def test_metrics_come_back_bit_for_bit(metrics: dict[str, float]) -> None:
    text = metrics_to_json(metrics)
    back = metrics_from_json(text)
    assert {name: bits(value) for name, value in back.items()} == {name: bits(value) for name, value in metrics.items()}


def test_not_finite_metrics_are_strict_json() -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    text = metrics_to_json({"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1.0})
    assert json.loads(text, parse_constant=refuse) == {"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": 1.0}


def test_a_statistic_comes_back() -> None:
    report = common_pb2.Report(
        position=7, metrics={"loss": 0.5}, seconds=1.25, at=12.5, part="p0", examples=32, at_until=True, finished=True
    )
    for in_force in (None, {}, {"lr": 0.1, "layers": [1, 2.0, None, "x"], "deep": {"a": True}}):
        if in_force is not None:
            report.in_force.CopyFrom(hyperparameters_to_proto(in_force))
        statistic = appstat_pb2.Statistic(experiment="e1", job="j1", attempt=3, report=report)
        assert statistic_of(statistic_row("e1", "j1", 3, report)) == statistic


def test_statistics_together_are_as_good_as_one_by_one() -> None:
    reports = [
        common_pb2.Report(position=position, metrics={"loss": 1 / position}, seconds=0.5, at=7.0, part="p")
        for position in (1, 2)
    ]
    together = appstat_pb2.Projection(
        statistics=appstat_pb2.Statistics(experiment="e", job="j", attempt=3, reports=reports)
    )
    alone = [
        appstat_pb2.Projection(statistic=appstat_pb2.Statistic(experiment="e", job="j", attempt=3, report=report))
        for report in reports
    ]
    assert ProjectedRows([together]).statistics == ProjectedRows(alone).statistics
    reports[1].seconds = -1.0
    together.statistics.reports[1].CopyFrom(reports[1])
    with pytest.raises(InvalidInput, match=r"projections\[2\]\.statistics\.reports\[1\]\.seconds: found -1"):
        ProjectedRows([*alone, together])


@pytest.mark.parametrize("message", [b"\xff", "{}", None])
def test_a_damaged_message_is_named(message: object) -> None:
    row = {"experiment": "x", "id": "7", "ordinal": 7, "message": message}
    with pytest.raises(
        DataLoss,
        match=r"the row of Job \(id '7', experiment 'x'\) with a value of another type: .*hopyard doctor --rebuild x",
    ):
        stored_message(experiment_pb2.Job, row)


@pytest.mark.parametrize("message", [experiment_pb2.Job(), experiment_pb2.Job(experiment="x", id="8")])
def test_a_message_of_another_row_is_damage(message: experiment_pb2.Job) -> None:
    row = {"experiment": "x", "id": "7", "ordinal": 7, "message": message.SerializeToString()}
    with pytest.raises(
        DataLoss, match=r"found the row of Job \(id '7', experiment 'x'\) with a message whose id is '8?'"
    ):
        stored_message(experiment_pb2.Job, row)


@pytest.mark.parametrize("version", ["two", 2.5, 2**40])
def test_a_damaged_row_is_named(version: object) -> None:
    row = {"stream": "x", "position": 7, "at": 1.0, "kind": "K", "payload": b"{}", "version": version, "checksum": ""}
    with pytest.raises(
        DataLoss,
        match=r"found the row of JournalRecord \(stream 'x', position 7\) with a value of another type: .*; restore",
    ):
        message_of(appstat_pb2.JournalRecord, row)
