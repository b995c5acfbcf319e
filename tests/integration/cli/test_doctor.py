"""Tests of `hopyard doctor`: its real self-test, which starts a cluster and trains on it, and snapshots of another cluster."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hopyard._runtime.snapshot_record import CLUSTER_FILE, RECORDS, SnapshotRecord, write_record
from hopyard.cli.doctor import packages
from hopyard.cli.doctor.check_result import ok
from hopyard.cli.main import run
from tests.integration.appstat.backup_data import DATABASE, DataDirectory


@pytest.mark.timeout(240)
def test_it_trains_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "torch", lambda: ok("torch", "left out"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run(["doctor", "--data", str(tmp_path / "data"), "--json"]) == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    assert found["self-test"]["health"] == "ok"
    assert found["self-test"]["detail"].startswith("a search of 2 jobs: cluster up after ")
    assert list(tmp_path.iterdir()) == []


def test_it_names_snapshots_of_another_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent = tmp_path / "data" / "agent"
    for folder in (agent / RECORDS, agent / "snapshots" / ("a" * 64)):
        folder.mkdir(parents=True)
    (tmp_path / "data").chmod(0o700)
    (agent / CLUSTER_FILE).write_text("one")
    write_record(agent / RECORDS, "a" * 64, SnapshotRecord("two", "digits"))
    assert run(["doctor", "--quick", "--data", str(tmp_path / "data"), "--json"]) == 0
    (found,) = (one for one in json.loads(capsys.readouterr().out)["findings"] if one["name"] == "agent snapshots")
    assert (found["health"], found["needed"]) == ("problem", False)
    assert found["detail"].endswith(f"belongs to another cluster, two: {'a' * 64}")


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (None, "appstat.sqlite is missing, but the store "),
        (5000, "appstat.sqlite: found 5000 bytes of a database of "),
        (0, "appstat.sqlite is empty, but the store "),
    ],
)
def test_a_quick_look_names_a_lost_or_truncated_database(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], size: int | None, expected: str
) -> None:
    data = DataDirectory(tmp_path / "data")
    (data.path / "cluster.lock").touch()
    look = ["doctor", "--quick", "--data", str(data.path), "--json"]
    assert run(look) == 0
    assert finding(capsys)["health"] == "ok"
    if size is None:
        (data.path / DATABASE).unlink()
    else:
        os.truncate(data.path / DATABASE, size)
    assert run(look) == 1
    found = finding(capsys)
    assert (found["health"], found["needed"]) == ("problem", True)
    assert expected in found["detail"]
    assert "`hopyard restore BACKUPS`" in found["detail"]


def finding(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the printed finding about the database."""
    (found,) = (one for one in json.loads(capsys.readouterr().out)["findings"] if one["name"] == "database")
    return dict(found)
