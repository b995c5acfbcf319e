"""Tests of `hopyard doctor` with its real self-test, which starts a cluster and trains on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hopyard.cli.doctor import packages
from hopyard.cli.doctor.check_result import ok
from hopyard.cli.main import run


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
