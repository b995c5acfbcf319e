"""Test that jobs which trained before a pause or a crash of the cluster start before new jobs after `hopyard resume`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.timing import HANG_SECONDS

HOPYARD = [sys.executable, "-m", "hopyard.cli.main"]

SCRIPT = """
import os
import time
from pathlib import Path

import hopyard

folder, x = Path(os.environ["NOTES"]), hopyard.hyperparameters()["x"]
with (folder / "starts").open("a") as starts:
    starts.write(f"{x}\\n")
for epoch in range(60):
    if not (folder / "enough").exists():
        time.sleep(0.5)
    hopyard.report(accuracy=x * (epoch + 1))
    (folder / f"trains-{x}").touch()
"""

EXPERIMENT = """
name: six
command: [python, train.py]
metric: {name: accuracy, mode: max}
space: {x: {choice: [1, 2, 3, 4, 5, 6]}}
generator: grid
stop: {jobs: 6, max_iterations: 60}
snapshot: {provider: framework}
"""


def wait_for(*files: Path) -> None:
    end = time.monotonic() + HANG_SECONDS
    while not all(file.exists() for file in files):
        assert time.monotonic() < end, f"waited in vain for {files}"
        time.sleep(0.05)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL], ids=["pause", "crash"])
def test_two_of_six_jobs_that_trained_start_first_after_a_resume(tmp_path: Path, stop: signal.Signals) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    environment = {**os.environ, "NOTES": str(notes)}
    run = subprocess.Popen(
        [*HOPYARD, "run", "experiment.yaml", "--slots", "2"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_for(notes / "trains-1", notes / "trains-2")
        if stop is signal.SIGINT:
            run.send_signal(stop)
    finally:
        if stop is signal.SIGKILL or not (notes / "trains-2").exists():
            os.killpg(run.pid, signal.SIGKILL)
        run.wait(HANG_SECONDS)
    (notes / "enough").touch()
    resumed = subprocess.run(
        [*HOPYARD, "resume", "--slots", "2"],
        cwd=tmp_path,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert resumed.returncode == 0, resumed.stderr
    starts = (notes / "starts").read_text().split()
    assert sorted(starts[:2]) == ["1", "2"]
    assert sorted(starts[2:4]) == ["1", "2"]
    assert sorted(starts[4:]) == ["3", "4", "5", "6"]
    replayed = subprocess.run(
        [*HOPYARD, "replay"], cwd=tmp_path, check=False, capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert replayed.returncode == 0, replayed.stderr
