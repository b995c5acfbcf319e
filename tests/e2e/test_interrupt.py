"""Test that Ctrl-C suspends, `hopyard resume` continues, and the final table is the same as without an interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import softmax_file
from tests.timing import HANG_SECONDS

HOPYARD = [sys.executable, "-m", "hopyard.cli.main"]
POLICY = {"name": "default", "barrier": True, "epoch": 4}
STOP = {"jobs": 6, "max_iterations": 8}
PACE = {"SOFTMAX_PACE": "0.5", "SOFTMAX_ENOUGH": "/never", "SOFTMAX_HELD": "1:6"}
"""Slow enough to be interrupted; no job trains beyond position 6, so that the experiment does not end before."""


def hopyard(*arguments: str, timeout: float = HANG_SECONDS) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*HOPYARD, *arguments], check=False, capture_output=True, text=True, timeout=timeout)


def table(data: Path) -> list[dict[str, Any]]:
    """Return the final table: what was trained and its results, without times and ids of runs."""
    found = hopyard("jobs", "--data", str(data), "--json")
    assert found.returncode == 0, found.stderr
    rows = json.loads(found.stdout)
    rows = rows["jobs"] if isinstance(rows, dict) else rows
    names = ("id", "state", "hyperparameters", "position", "best_value", "best_position", "last_value")
    return [{name: row[name] for name in names} for row in rows]


def interrupt_when(data: Path, file: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run an experiment and send SIGINT once its progress output contains `text`; return the completed process."""
    arguments = ["run", str(file), "--data", str(data), "--slots", "2"]
    process = subprocess.Popen(
        [*HOPYARD, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **PACE}
    )
    assert process.stderr is not None
    shown = []
    for line in process.stderr:
        shown.append(line)
        if text in line:
            process.send_signal(signal.SIGINT)
            break
    out, err = process.communicate(timeout=HANG_SECONDS)
    return subprocess.CompletedProcess(arguments, process.returncode, out, "".join(shown) + err)


@pytest.mark.timeout(600)
def test_interrupted_and_resumed_gives_the_same_table(tmp_path: Path) -> None:
    file = softmax_file(tmp_path / "e", policy=POLICY, stop=STOP)
    undisturbed = hopyard("run", str(file), "--data", str(tmp_path / "one"), "--slots", "2", "--json")
    assert undisturbed.returncode == 0, undisturbed.stderr
    json.loads(undisturbed.stdout)

    interrupted = interrupt_when(tmp_path / "two", file, "RUNNING")
    assert interrupted.returncode == 130, interrupted.stderr
    assert "hopyard resume" in interrupted.stderr + interrupted.stdout
    halfway = table(tmp_path / "two")
    assert any(row["state"] in ("SUSPENDED", "PENDING") for row in halfway)

    resumed = hopyard("resume", "--data", str(tmp_path / "two"), "--slots", "2", "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert table(tmp_path / "two") == table(tmp_path / "one")


def state_of(data: Path) -> str:
    """Return the state of the only experiment in a data directory."""
    found = hopyard("experiments", "--data", str(data), "--json")
    assert found.returncode == 0, found.stderr
    rows = json.loads(found.stdout)
    return str((rows["experiments"] if isinstance(rows, dict) else rows)[0]["state"])


def test_an_experiment_whose_last_job_completes_during_the_suspension_ends(tmp_path: Path) -> None:
    """Interrupt a run in the only iteration of its only job, which waits for a file until the experiment is pausing."""
    enough, data = tmp_path / "enough", tmp_path / "data"
    file = softmax_file(tmp_path / "e", policy={"name": "default"}, stop={"jobs": 1, "max_iterations": 1})
    process = subprocess.Popen(
        [*HOPYARD, "run", str(file), "--data", str(data), "--slots", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SOFTMAX_HELD": "1:0", "SOFTMAX_ENOUGH": str(enough)},
    )
    assert process.stderr is not None
    assert any("1 running" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    end = time.monotonic() + HANG_SECONDS
    while state_of(data) != "PAUSING":
        assert time.monotonic() < end
    enough.touch()
    out, err = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 0, err
    assert "COMPLETED" in out
    assert "hopyard resume" not in out + err
    assert state_of(data) == "COMPLETED"
