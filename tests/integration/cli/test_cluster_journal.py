"""Damage of the cluster's own journal is one error of the command that starts the cluster."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hopyard.cli.main import run
from tests.integration.scheduler.conftest import experiment

JOURNAL = Path(__file__).parents[2] / "golden" / "record" / "journals" / "asha.hopyard"


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A data directory in which the journal of the cluster has lost its records."""
    data = tmp_path / "data"
    assert run(["import", str(JOURNAL), "--data", str(data)]) == 0
    with closing(sqlite3.connect(data / "appstat.sqlite")) as database, database:
        database.execute("INSERT OR REPLACE INTO streams (name, length, head) VALUES ('cluster', 4, 'x')")
    return data


@pytest.mark.parametrize("command", ["up", "resume", "run"])
def test_a_command_that_starts_the_cluster_names_the_damaged_record(
    command: str, damaged: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files = [str(experiment(tmp_path / "e", jobs=1, length=1))] if command == "run" else []
    capfd.readouterr()
    assert run([command, *files, "--data", str(damaged), "--slots", "1"]) == 1
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("error:")]
    assert len(said) == 1
    assert said[0].startswith(
        "error: journal of cluster: record 1 is missing: the journal must have 4 records; move the data directory away"
    )
