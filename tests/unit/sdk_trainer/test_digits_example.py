from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits"


def train(*arguments: str) -> list[str]:
    program = [sys.executable, str(EXAMPLE / "train.py"), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True, timeout=120)
    return [line.partition("loss")[0] + line.partition("loss")[2].split()[0] for line in done.stdout.splitlines()]


@pytest.mark.timeout(180)  # three processes that import PyTorch and scikit-learn
def test_runs_off_the_cluster_and_resumes_with_the_same_curve(tmp_path: Path) -> None:
    straight = train("--epochs", "4")
    assert len(straight) == 4
    assert straight[0].startswith("epoch   1  accuracy 0.")
    assert float(straight[-1].split()[3]) > 0.9
    snapshots = ("--snapshots", str(tmp_path))
    assert train("--epochs", "1", *snapshots) + train("--epochs", "4", *snapshots) == straight


def test_the_experiment_file_is_short_and_names_what_the_trainer_takes() -> None:
    text = (EXAMPLE / "experiment.yaml").read_text()
    assert len(text.splitlines()) <= 20
    experiment = yaml.safe_load(text)
    assert experiment["trainer"] == "train.py:DigitsTrainer"
    assert set(experiment["space"]) == {"lr", "momentum", "weight_decay", "dropout", "batch_size", "channels"}
