"""Test of a search whose jobs all fail from the same cause: it pauses after a few runs, and continues after a remedy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.timing import HANG_SECONDS

SCRIPT = """
import os
from pathlib import Path

import hopyard

notes, x = Path(os.environ["NOTES"]), hopyard.hyperparameters()["x"]
with (notes / "starts").open("a") as starts:
    starts.write(f"{x}\\n")
if not (notes / "data").exists():
    raise FileNotFoundError(f"no data for {x:.3f} in process {os.getpid()}")
for epoch in range(2):
    hopyard.report(accuracy=x * (epoch + 1))
"""

EXPERIMENT = """
name: broken
command: [python, train.py]
metric: {name: accuracy, mode: max}
space: {x: {uniform: [0.1, 1.0]}}
stop: {jobs: 12, max_iterations: 2}
snapshot: {provider: framework}
"""


def hopyard(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hopyard.cli.main", *arguments]
    environment = {**os.environ, "COLUMNS": "300", "NOTES": str(folder)}
    return subprocess.run(
        command, cwd=folder, check=False, capture_output=True, text=True, timeout=HANG_SECONDS, env=environment
    )


def test_the_first_jobs_that_fail_alike_pause_the_search_and_a_remedy_continues_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    run = hopyard(tmp_path, "run", "experiment.yaml", "--slots", "2", "--json")
    assert run.returncode == 1, run.stderr
    present = json.loads(run.stdout)["experiment"]
    name, args = present["id"], present["reason_args"]
    assert (present["state"], present["reason_code"]) == ("PAUSED", "JOBS_FAIL_ALIKE")
    assert args["runs"] >= 4
    assert f"see hopyard logs {name} --job {args['job']}" in run.stderr
    assert f"hopyard resume {name}" in run.stderr
    started = len((tmp_path / "starts").read_text().split())
    assert started <= 8, "12 jobs with 4 attempts each would be 48"

    output = hopyard(tmp_path, "logs", name, "--job", args["job"])
    assert "FileNotFoundError: no data for" in output.stdout

    (tmp_path / "data").touch()
    resumed = hopyard(tmp_path, "resume", name, "--slots", "2", "--json")
    assert resumed.returncode == 0, resumed.stderr
    ended = json.loads(resumed.stdout)
    assert ended["experiment"]["state"] == "COMPLETED"
    assert [job["state"] for job in ended["jobs"]] == ["COMPLETED"] * 12
    replayed = hopyard(tmp_path, "replay", name)
    assert replayed.returncode == 0, replayed.stderr
