"""Tests that a training that is suspended and resumed in other processes has the same bits as an uninterrupted one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.timing import HANG_SECONDS
from tests.unit.trainer.torch_trainers import CASES

ROOT = Path(__file__).parents[3]


def train(folder: Path, *stages: int) -> Any:
    """Train stages of all cases in a new process, and return the JSON document that it prints."""
    program = [sys.executable, "-m", "tests.unit.trainer.torch_trainers", str(folder), *map(str, stages)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        program, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=HANG_SECONDS
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[Any]]:
    straight = train(tmp_path_factory.mktemp("straight"), 0, 1, 2)
    folder = tmp_path_factory.mktemp("broken")
    return straight, [train(folder, stage) for stage in range(3)]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("case", CASES)
def test_metrics_and_state_are_the_same_bits(case: str, trained: tuple[Any, list[Any]]) -> None:
    straight, parts = trained
    joined = {position: metrics for part in parts for position, metrics in part[case]["reports"].items()}
    assert joined == straight[case]["reports"]
    assert list(joined) == sorted(joined, key=int)
    # The snapshot contains the weights, the optimizer's moments, the schedule and the random states.
    assert parts[-1][case]["sha256"] == straight[case]["sha256"]
