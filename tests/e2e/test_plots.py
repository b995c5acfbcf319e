"""Tests of `hopyard plot` on a real experiment, while its cluster runs and after its end."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from hopyard.cli.main import run
from hopyard.client import Client
from tests.e2e.harness import softmax_file


@pytest.mark.timeout(240)
def test_an_experiment_is_plotted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = {"name": "default", "barrier": True, "epoch": 2}
    file = softmax_file(tmp_path / "code", stop={"jobs": 3, "max_iterations": 4}, policy=policy)
    data = tmp_path / "data"

    def shown(*arguments: str) -> Any:
        assert run(["plot", "softmax", *arguments, "--json", "--data", str(data)]) == 0
        return json.loads(capsys.readouterr().out)["shows"]

    with Client.local(data, slots=2) as client:
        experiment = client.create(file)
        client.wait(experiment, timeout=180)
        jobs = client.jobs(experiment)
        live = shown("--kind", "gantt")
    gantt = shown("--kind", "gantt", "-o", str(tmp_path / "gantt.png"))
    assert gantt == live
    assert gantt["slots"] == ["local/0", "local/1"]
    for job in jobs:
        assert [run["attempt"] for run in gantt["runs"] if run["job"] == job.id] == list(range(1, job.attempt + 1))
    # The first job at the barrier was suspended, and its slot went to the third job.
    assert max(job.attempt for job in jobs) >= 2
    for slot in gantt["slots"]:
        own = [run for run in gantt["runs"] if run["slot"] == slot]
        assert all(0 <= run["start"] <= run["end"] for run in own)
        assert all(one["end"] <= other["start"] for one, other in itertools.pairwise(own))
    assert (tmp_path / "gantt.png").read_bytes().startswith(b"\x89PNG")

    curves = shown()
    assert [curve["job"] for curve in curves["curves"]] == ["1", "2", "3"]
    assert [curve["positions"] for curve in curves["curves"]] == [[1, 2, 3, 4]] * 3
    assert [len(curve["resumed"]) + 1 for curve in curves["curves"]] == [job.attempt for job in jobs]
    assert curves["unit"] == "epochs"
    assert len(shown("--kind", "durations")["policies"][0]["durations"]) == 3
    assert shown("--kind", "jobs_at_R")["searches"][0]["points"][-1][1] == 3
