"""Tests of result tables as rows, CSV, JSON, Parquet and pandas: values are exact, and missing ones stay missing."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from hopyard.client.types import JobState
from hopyard.errors import Unsupported
from hopyard.results import ColumnKind, Results, job_results, report_results
from hopyard.results.files import json_document, write_csv, write_parquet, write_text
from tests.unit.results.given import INF, NAN, experiment, job, statistic

JOBS = [
    job(
        "1",
        {"lr": 0.1, "n": 3, "opt": {"name": "sgd", "momentum": 0.9}},
        best_value=0.5,
        best_position=2,
        last_value=NAN,
    ),
    job("2", {"lr": 1, "n": 4, "opt": {"name": "adam"}, "on": True, "mixed": 1, "sizes": [1, 2]}, last_value=-INF),
    job("3", {"lr": 0.3, "n": None, "opt": "none", "on": False, "mixed": "=1+2", "a.b": 1, "a": {"b": 2}, "e": {}}),
    job("4", {}, state=JobState.FAILED, reason='it, said\n"no"', parent="1", fork_position=2, priority=-1.5),
]


@pytest.fixture
def jobs() -> Results:
    return job_results(experiment(), JOBS)


def test_columns_are_fixed_ones_then_hyperparameters_by_name(jobs: Results) -> None:
    names = list(jobs.columns)
    assert names[:5] == ["experiment", "job", "state", "best", "best_position"]
    assert names[names.index("reason_code") + 1 :] == [
        "hp.a.b", "hp.a\\.b", "hp.e", "hp.lr", "hp.mixed", "hp.n", "hp.on", "hp.opt", "hp.opt.momentum", "hp.opt.name",
        "hp.sizes",
    ]  # fmt: skip
    assert list(job_results(experiment(), reversed(JOBS)).columns) == names
    assert all(list(row) == names for row in jobs)


def test_each_column_has_one_type(jobs: Results) -> None:
    kinds = {name: jobs.columns[f"hp.{name}"] for name in ("lr", "n", "on", "mixed", "opt.name", "sizes", "e")}
    assert kinds == {
        "lr": ColumnKind.FLOAT,
        "n": ColumnKind.INT,
        "on": ColumnKind.BOOL,
        "mixed": ColumnKind.TEXT,
        "opt.name": ColumnKind.TEXT,
        "sizes": ColumnKind.TEXT,
        "e": ColumnKind.TEXT,
    }
    assert jobs.column("hp.lr") == [0.1, 1.0, 0.3, None]
    assert [type(v) for v in jobs.column("hp.lr")[:3]] == [float] * 3
    assert jobs.column("hp.mixed") == [None, "1", "=1+2", None]
    assert jobs.column("hp.sizes") == [None, "[1, 2]", None, None]
    assert jobs.column("hp.opt") == [None, None, "none", None]
    assert jobs.column("hp.a.b") == [None, None, 2, None]
    assert jobs.column("hp.a\\.b") == [None, None, 1, None]


def test_what_a_job_has_not_is_missing(jobs: Results) -> None:
    first, last = jobs.rows[0], jobs.rows[3]
    assert (first["best"], first["best_position"], first["parent"], first["fork_position"]) == (0.5, 2, None, None)
    assert math.isnan(first["last"])
    assert (last["best"], last["best_position"], last["last"]) == (None, None, None)
    assert (last["state"], last["parent"], last["fork_position"], last["priority"]) == ("FAILED", "1", 2, -1.5)


def test_reports_are_rows_with_a_column_a_metric() -> None:
    found = report_results(
        experiment(), [statistic("1", 1, accuracy=0.5, loss=INF), statistic("1", 2, part="p0", examples=7, accuracy=1)]
    )
    assert list(found.columns)[-3:] == ["at", "metric.accuracy", "metric.loss"]
    assert found.column("metric.loss") == [INF, None]
    assert found.column("part") == [None, "p0"]
    assert found.column("examples") == [None, 7]
    assert found.column("position") == [1, 2]


def test_nothing_is_a_table_too(tmp_path: Path) -> None:
    none = job_results(experiment(), [])
    assert len(none) == 0
    out = io.StringIO()
    write_csv(none, out)
    assert out.getvalue().startswith("experiment,job,state,")
    assert len(out.getvalue().splitlines()) == 1


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_csv_says_what_is_missing_infinite_and_no_number(jobs: Results) -> None:
    out = io.StringIO()
    write_csv(jobs, out)
    rows = rows_of(out.getvalue())
    assert [row["last"] for row in rows] == ["NaN", "-inf", "", ""]
    assert [row["hp.on"] for row in rows] == ["", "true", "false", ""]
    assert [row["hp.n"] for row in rows] == ["3", "4", "", ""]
    assert rows[3]["reason"] == 'it, said\n"no"'
    assert rows[3]["priority"] == "-1.5"


@pytest.mark.parametrize("text", ["=1+2", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "=cmd|' /C calc'!A0"])
def test_no_text_becomes_a_formula_in_a_spreadsheet(text: str) -> None:
    out = io.StringIO()
    write_csv(job_results(experiment(), [job("1", {"x": text, "y": "a=1"}), job("2", {"x": "fine"})]), out)
    rows = rows_of(out.getvalue())
    assert rows[0]["hp.x"] == "'" + text
    assert rows[0]["hp.y"] == "a=1"


def test_json_is_strict(jobs: Results, tmp_path: Path) -> None:
    path = tmp_path / "new" / "it.json"
    write_text(jobs, path, "json")
    read = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert read == json_document(jobs)
    assert [row["last"] for row in read["rows"]] == [None] * 4
    assert read["rows"][1]["hp.on"] is True
    assert read["columns"]["hp.n"] == "int"


def test_a_file_is_replaced_as_a_whole(jobs: Results, tmp_path: Path) -> None:
    path = tmp_path / "it.csv"
    path.write_text("old")
    write_text(jobs, path, "csv")
    assert len(rows_of(path.read_text())) == 4
    broken = Results(jobs.experiment, {**jobs.columns, "none": ColumnKind.TEXT}, jobs.rows)
    with pytest.raises(KeyError):
        write_text(broken, path, "csv")
    assert len(rows_of(path.read_text())) == 4
    assert [file.name for file in tmp_path.iterdir()] == ["it.csv"]


def test_parquet_keeps_types_and_values(jobs: Results, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install './hopyard[parquet]'")
    write_parquet(jobs, tmp_path / "it.parquet")
    read = parquet.read_table(tmp_path / "it.parquet")
    types = {"hp.lr": "double", "hp.n": "int64", "hp.on": "bool", "hp.mixed": "string", "parent": "string"}
    assert {name: str(read.schema.field(name).type) for name in types} == types
    for name in jobs.columns:
        assert _same(read.column(name).to_pylist(), jobs.column(name)), name


def test_a_frame_has_the_same_values_and_knows_what_is_missing(jobs: Results) -> None:
    pandas = pytest.importorskip("pandas", reason="pip install './hopyard[pandas]'")
    frame = jobs.frame()
    assert list(frame.columns) == list(jobs.columns)
    assert {n: str(frame[n].dtype) for n in ("hp.lr", "hp.n", "hp.on")} == {
        "hp.lr": "float64",
        "hp.n": "Int64",
        "hp.on": "boolean",
    }
    assert frame["hp.n"].isna().tolist() == [False, False, True, True]
    assert frame["hp.n"][0] == 3
    assert frame["last"][1] == -INF
    assert frame["hp.opt.name"].tolist()[:2] == ["sgd", "adam"]
    assert frame["best"].max() == 0.5
    out = io.StringIO()
    write_csv(jobs, out)
    again = pandas.read_csv(io.StringIO(out.getvalue()), dtype={"job": str})
    assert again["hp.lr"].tolist()[:3] == [0.1, 1.0, 0.3]
    assert again["last"][1] == -INF


def test_a_missing_library_is_named(jobs: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Unsupported, match=r"pip install .*\[pandas\]'.* \(no module pandas\)"):
        jobs.frame()
    with pytest.raises(Unsupported, match=r"pip install .*\[parquet\]'"):
        write_parquet(jobs, tmp_path / "it.parquet")


def _same(one: list[Any], two: list[Any]) -> bool:
    return [repr(v) for v in one] == [repr(v) for v in two]


def test_a_sequence_is_one_column() -> None:
    lr = {"sequence": {"constant": 0.1}}
    made = job_results(experiment(), [job("1", {"lr": lr}), job("2", {"lr": 0.1})])
    assert [json.loads(row["hp.lr"]) for row in made.rows] == [lr, 0.1]
