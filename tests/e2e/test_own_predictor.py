"""Tests of the example of a custom predictor: `hopyard` finds, uses and replays it. Its page runs its own tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.e2e.harness import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "own_predictor"

# Starts like the installed `hopyard`: unlike `python -m`, without the working directory on the search path.
HOPYARD = [sys.executable, "-P", "-c", "from hopyard.cli.main import main; main()"]


def call(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(
        command, cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=250
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copy = tmp_path / "own_predictor"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.mark.timeout(600)
def test_it_is_asked_and_replays_in_its_folder(folder: Path) -> None:
    file = folder / "experiment.yaml"
    spec = yaml.safe_load(file.read_text())
    # The policy waits for each answer, so that none comes too late.
    spec["policy"] = {"name": "tests.integration.scheduler.prediction_policies:Patient", "step": 4}
    spec["stop"] = {"jobs": 2, "max_iterations": 12}
    file.write_text(yaml.safe_dump(spec))
    done = call(folder, *HOPYARD, "run", "experiment.yaml", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    events = json.loads(call(folder, *HOPYARD, "events", "--json").stdout)["events"]
    answers = [event["text"] for event in events if "prediction" in event["text"] and event["kind"] == "Answered"]
    assert len(answers) == 4, events
    assert all("is expected at 12" in text for text in answers), answers
    replayed = call(folder, *HOPYARD, "replay")
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert "every decision is the same" in replayed.stderr
    # The tests of the folder are collected once, and not again from the data directory.
    collected = call(folder, sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider")
    assert collected.returncode == 0, collected.stdout + collected.stderr


def test_a_parameter_that_it_does_not_take_is_refused(folder: Path) -> None:
    file = folder / "experiment.yaml"
    file.write_text(file.read_text().replace("fade: 0.6", "fate: 0.6"))
    done = call(folder, *HOPYARD, "run", "experiment.yaml")
    assert done.returncode != 0, done.stdout + done.stderr
    assert "SlowingDown has no parameter fate; it takes: doubt, fade" in " ".join(done.stderr.split())
