"""Test of an experiment file that names a metric which its script does not report: from the pause to the end of the search."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.timing import HANG_SECONDS

SCRIPT = """
import hopyard

hyperparameters = hopyard.hyperparameters()
for epoch in range(3):
    hopyard.report(acc=hyperparameters["x"] * (epoch + 1), loss=1.0)
"""

EXPERIMENT = """
name: blind
command: [python, train.py]
metric: {name: accuracy, mode: max}
space: {x: {uniform: [0.0, 1.0]}}
stop: {jobs: 6, max_iterations: 3}
resources: {slots: 1}
"""


def hopyard(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hopyard.cli.main", *arguments]
    environment = {**os.environ, "COLUMNS": "300"}
    return subprocess.run(
        command, cwd=folder, check=False, capture_output=True, text=True, timeout=HANG_SECONDS, env=environment
    )


def listed(folder: Path) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = json.loads(hopyard(folder, "jobs", "--json").stdout)
    return jobs


def test_a_wrong_metric_pauses_the_search_at_the_first_report_and_two_commands_continue_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    run = hopyard(tmp_path, "run", "experiment.yaml", "--json")
    assert run.returncode == 1, run.stderr
    present = json.loads(run.stdout)["experiment"]
    assert (present["state"], present["reason_code"]) == ("PAUSED", "METRIC_MISSING")
    name = present["id"]
    assert (
        f"error: no report contains the metric accuracy; job 1 has reported acc, loss up to 1; "
        f"change it with hopyard set {name} --metric acc, or resume to continue without it"
    ) in run.stderr.splitlines()
    assert f"change the metric: hopyard set {name} --metric acc; then: hopyard resume {name}" in run.stderr.splitlines()
    assert all(job["position"] == 0 or job["id"] == "1" for job in listed(tmp_path))

    wrong = hopyard(tmp_path, "set", name, "--metric", "acuracy")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "error: no report contains acuracy; reported are acc, loss" in wrong.stderr.splitlines()
    changed = hopyard(tmp_path, "set", name, "--metric", "acc")
    assert changed.returncode == 0, changed.stderr
    assert f"blind ({name}) is PAUSED: metric acc (max), slots 1, " in changed.stderr

    resumed = hopyard(tmp_path, "resume", name, "--json")
    assert resumed.returncode == 0, resumed.stderr
    ended = json.loads(resumed.stdout)
    assert ended["experiment"]["state"] == "COMPLETED"
    assert {job["state"] for job in ended["jobs"]} == {"COMPLETED"}
    assert len(ended["jobs"]) == 6
    assert ended["experiment"]["best_value"] == max(3 * job["hyperparameters"]["x"] for job in ended["jobs"])
    replayed = hopyard(tmp_path, "replay", name)
    assert replayed.returncode == 0, replayed.stderr
