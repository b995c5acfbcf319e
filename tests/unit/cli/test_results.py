"""Tests of the requests that `hopyard results`, `export` and `import` refuse before they connect to a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard.cli.commands.inspect import results
from hopyard.cli.main import run
from hopyard.results import Results, job_results
from tests.unit.results.given import experiment, job

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--format", "parquet"], "--format parquet needs a place to write to: -o FILE"),
        (["--format", "tensorboard"], "-o DIR"),
        (["--format", "mlflow"], "-o URI (or $MLFLOW_TRACKING_URI)"),
        (["--csv"], "there is no --csv: -o FILE.csv writes a file, --format csv to stdout"),
        (["--follow"], "--follow goes with --format tensorboard and mlflow"),
        (["--format", "tensorboard", "-o", "x", "--reports"], "--reports goes with tables"),
        (
            ["-o", "it.xlsx"],
            "it.xlsx: its suffix is none of .csv, .json, .parquet; give --format csv, json or parquet",
        ),
    ],
)
def test_wrong_use_is_told_with_what_to_say_instead(
    arguments: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert run(["results", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_an_import_of_nothing_makes_no_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    assert run(["import", str(tmp_path / "it.hopyard"), "--data", str(data)]) == 1
    assert "it.hopyard: there is no such file" in capsys.readouterr().err
    assert not data.exists()


def shown(found: Results, form: results.Format, capsys: pytest.CaptureFixture[str], to: str | None = None) -> str:
    results._write(found, form, to)
    return capsys.readouterr().out


def test_a_table_leaves_out_what_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    found = job_results(experiment(), [job("1", {"lr": 0.25}, best_value=0.5, best_position=3), job("2", {"on": True})])
    header, first, second = shown(found, "table", capsys).splitlines()
    assert header.split() == [
        "job", "state", "best", "best_position", "position", "seconds", "attempt", "failures", "suspends", "hp.lr", "hp.on"
    ]  # fmt: skip
    assert first.split()[:4] == ["1", "COMPLETED", "0.5", "3"]
    assert second.split()[-1] == "true"


def test_csv_and_json_go_to_stdout_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = job_results(experiment(), [job("1")])
    assert shown(found, "csv", capsys).startswith("experiment,job,")
    assert shown(found, "json", capsys).startswith("{")
    assert shown(found, "csv", capsys, str(tmp_path / "it.csv")) == ""
    assert (tmp_path / "it.csv").read_text().startswith("experiment,job,")
