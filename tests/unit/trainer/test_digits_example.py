from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from tests.timing import HANG_SECONDS

pytestmark = pytest.mark.quick

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits"


TRAIN = """
import json, runpy, sys
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["train.py", *arguments]
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


def train(*times: Sequence[str]) -> list[str]:
    """Return the lines that the example prints when it is called several times in one process, which imports PyTorch once."""
    program = [sys.executable, "-c", TRAIN, json.dumps(times)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        program, cwd=EXAMPLE, env=environment, capture_output=True, text=True, check=True, timeout=HANG_SECONDS
    )
    return [line.partition("loss")[0] + line.partition("loss")[2].split()[0] for line in done.stdout.splitlines()]


@pytest.mark.nightly
def test_runs_off_the_cluster_and_resumes_with_the_same_curve(tmp_path: Path) -> None:
    snapshots = ("--snapshots", str(tmp_path))
    *straight, first = train(("--epochs", "4"), ("--epochs", "1", *snapshots))
    assert len(straight) == 4
    assert straight[0].startswith("epoch   1  accuracy 0.")
    assert float(straight[-1].split()[3]) > 0.9
    assert [first, *train(("--epochs", "4", *snapshots))] == straight


def test_the_experiment_file_is_short_and_names_what_the_trainer_takes() -> None:
    text = (EXAMPLE / "experiment.yaml").read_text()
    assert len(text.splitlines()) <= 20
    experiment = yaml.safe_load(text)
    assert experiment["trainer"] == "train.py:DigitsTrainer"
    assert set(experiment["space"]) == {"lr", "momentum", "weight_decay", "dropout", "batch_size", "channels"}
