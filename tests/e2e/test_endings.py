"""Ended experiments, through all services: how jobs are shown that were not trained to their end, and what an extension repeats."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

from hopyard.client import Client
from hopyard.client.types import JobState
from hopyard.policy.vocabulary.reasons import ReasonCode
from tests.timing import HANG_SECONDS

pytestmark = pytest.mark.timeout(240)

PROGRAM = """
import sys
import hopyard

for epoch in range(1, 100):
    hopyard.report(accuracy=float(sys.argv[1]) + epoch / 1000)
"""

WAITING = {"pending", "suspended", "creating", "held", "running", "starting", "leaving"}


def hopyard(*words: str, code: int = 0) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "hopyard.cli.main", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_SECONDS,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, done.stderr


def search(folder: Path, **terms: Any) -> tuple[str, list[dict[str, Any]], list[str]]:
    """Run an experiment, and return its final table, its jobs as JSON, and the options that name its data directory."""
    (folder / "train.py").write_text(PROGRAM)
    given = {
        "name": "small",
        "command": ["python", "train.py", "{quality}"],
        "metric": {"name": "accuracy", "mode": "max"},
        "space": {"quality": {"choice": [0.1, 0.2, 0.3, 0.4, 0.5]}},
        "generator": "grid",
        "stop": {"jobs": 5, "max_iterations": 9},
        "snapshot": {"provider": "framework"},
        **terms,
    }
    (folder / "experiment.yaml").write_text(yaml.safe_dump(given))
    where = ["--data", str(folder / "data")]
    out, _ = hopyard("run", str(folder / "experiment.yaml"), *where, "--slots", "2")
    jobs, _ = hopyard("jobs", "small", "--json", *where)
    return out, json.loads(jobs), where


def test_a_search_that_halving_has_finished_has_no_job_that_waits(tmp_path: Path) -> None:
    out, jobs, where = search(tmp_path, policy={"name": "asha", "eta": 3, "r": 1, "brackets": [0]})
    ended = {"COMPLETED", "TERMINATED"}
    assert {job["state"] for job in jobs} <= ended
    texts = {job["reason"] for job in jobs if job["state"] == "TERMINATED"}
    assert "stopped at rung 0 of 3, position 1" in texts
    assert texts <= {"stopped at rung 0 of 3, position 1", "stopped at rung 1 of 3, position 3"}
    shown, _ = hopyard("jobs", "small", *where)
    for table in (out, shown):
        assert "stopped at rung 0 of 3, position 1" in table
        assert not WAITING & set(table.split())
        assert "✗" not in table
    results, _ = hopyard("results", "small", *where, "--format", "json")
    assert {row["state"] for row in json.loads(results)["rows"]} <= ended
    name = jobs[0]["experiment"]
    with Client.local(tmp_path / "data", slots=2) as client:
        assert {job.state for job in client.jobs(name)} <= {JobState.COMPLETED, JobState.TERMINATED}
        assert client.get(name).jobs.keys() <= ended
        client.extend(name, jobs=1)  # The jobs on the rungs can be promoted again.
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", UserWarning
            )  # A promotion trains from the beginning: the program saves nothing.
            client.wait(name, HANG_SECONDS)
        stopped = [job for job in client.jobs(name) if job.state is not JobState.COMPLETED]
        assert all(job.reason_code is ReasonCode.STOPPED_AT_RUNG for job in stopped)


def test_a_search_that_reached_its_target_shows_no_failure(tmp_path: Path) -> None:
    metric = {"name": "accuracy", "mode": "max", "target": 0.203}
    out, jobs, where = search(tmp_path, metric=metric, policy={"name": "default", "barrier": True, "epoch": 3})
    [best] = [job["id"] for job in jobs if job["state"] == "COMPLETED"]
    assert {job["reason"] for job in jobs if job["id"] != best} <= {
        f"ended: target reached by job {best}",
        f"not started: the experiment ended first (target reached by job {best})",
    }
    assert "✗" not in out
    assert "failed" not in out
    assert not WAITING & set(hopyard("jobs", "small", *where)[0].split())


def test_an_extension_says_what_it_would_train_again_and_asks(tmp_path: Path) -> None:
    _, jobs, where = search(tmp_path, policy="default", stop={"jobs": 2, "max_iterations": 3})
    assert {job["state"] for job in jobs} == {"COMPLETED"}
    longer = ["extend", "small", "--max-iterations", "5", *where]
    _, err = hopyard(*longer, code=2)
    assert "2 jobs go back and would train 6 iterations again: no snapshot of their progress is left" in err
    assert "nobody can be asked here: give --yes" in err
    assert {job["state"] for job in json.loads(hopyard("jobs", "small", "--json", *where)[0])} == {"COMPLETED"}
    out, _ = hopyard(*longer, "--yes", "--json")
    assert json.loads(out)["lost_progress"] == {"jobs": 2, "iterations": 6}
    _, err = hopyard("extend", "small", "--time", "10m", *where, code=2)
    assert "seconds: found 600, but experiment" in err
    assert "has no time limit (stop.max_time)" in err
