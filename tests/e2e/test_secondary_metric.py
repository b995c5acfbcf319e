"""Test of the example of a policy with a second metric and its own stop rule: it ends a real search. Its page runs its own test."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import REPOSITORY

pytestmark = pytest.mark.nightly

EXAMPLE = REPOSITORY / "examples" / "secondary_metric"
HOPYARD = [sys.executable, "-P", "-c", "from hopyard.cli.main import main; main()"]


def call(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=250)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copy = tmp_path / "secondary_metric"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.mark.timeout(400)
def test_a_small_and_good_model_ends_the_search_and_wins(folder: Path) -> None:
    done = call(folder, *HOPYARD, "run", "experiment.yaml", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    ended = json.loads(done.stdout)
    assert ended["experiment"]["state"] == "COMPLETED"
    reason = ended["experiment"]["reason"]
    (winner,) = [job for job in ended["jobs"] if job["state"] == "COMPLETED" and job["reason"] == reason]
    assert winner["position"] in [snapshot["position"] for snapshot in winner["snapshots"]]
    curves = [
        json.loads(call(folder, *HOPYARD, "curve", winner["id"], "--metric", metric, "--json").stdout)["points"]
        for metric in ("accuracy", "sparsity")
    ]
    found = [(one["value"], two["value"]) for one, two in zip(*curves, strict=True)]
    (first, *_) = [pair for pair in found if pair[0] >= 0.92 and pair[1] >= 0.5]
    assert reason in [f"accuracy {one:.3f} with sparsity {two:.2f}" for one, two in found[found.index(first) :]]
    assert {job["state"] for job in ended["jobs"]} <= {"COMPLETED", "TERMINATED"}
    replayed = call(folder, *HOPYARD, "replay")
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert "every decision is the same" in replayed.stderr
