"""Tests of the example of a custom policy: it is short, and `hopyard` finds and replays it. Its page runs its own test."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.e2e.harness import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "own_policy"

# Starts like the installed `hopyard`: unlike `python -m`, without the working directory on the search path.
HOPYARD = [sys.executable, "-P", "-c", "from hopyard.cli.main import main; main()"]


def call(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=150)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copy = tmp_path / "own_policy"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def test_the_example_is_short() -> None:
    policy, test = ((EXAMPLE / name).read_text().splitlines() for name in ("finalists.py", "test_finalists.py"))
    assert len(policy) < 60
    assert len(test) < 40


@pytest.mark.timeout(300)
def test_it_runs_and_replays_in_its_folder(folder: Path) -> None:
    file = folder / "experiment.yaml"
    spec = yaml.safe_load(file.read_text())
    spec["policy"] |= {"seconds": 600, "trial": 2, "finalists": 2}
    spec["stop"] = {"jobs": 6, "max_iterations": 5}
    file.write_text(yaml.safe_dump(spec))
    done = call(folder, *HOPYARD, "run", "experiment.yaml", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = json.loads(call(folder, *HOPYARD, "jobs", "--json").stdout)
    assert sorted((job["state"], job["position"]) for job in jobs) == [("COMPLETED", 5)] * 2 + [("TERMINATED", 2)] * 4
    replayed = call(folder, *HOPYARD, "replay")
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert "every decision is the same" in replayed.stderr


@pytest.mark.timeout(300)
def test_it_travels_with_the_code_of_its_experiment(folder: Path, tmp_path: Path) -> None:
    file = folder / "experiment.yaml"
    spec = yaml.safe_load(file.read_text())
    spec["policy"] |= {"seconds": 600, "trial": 1, "finalists": 1}
    spec["stop"] = {"jobs": 2, "max_iterations": 2}
    file.write_text(yaml.safe_dump(spec))
    done = call(tmp_path, *HOPYARD, "run", str(file), "--data", str(tmp_path / "data"), "--json")
    assert done.returncode == 0, done.stdout + done.stderr


def test_where_it_is_not_found_it_is_said_what_to_do(folder: Path, tmp_path: Path) -> None:
    (folder / "finalists.py").rename(tmp_path / "elsewhere.py")
    done = call(tmp_path, *HOPYARD, "run", str(folder / "experiment.yaml"), "--data", str(tmp_path / "data"))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "there is no module finalists on the search path" in done.stderr
    assert "call hopyard in the folder where it lies" in " ".join(done.stderr.split())
