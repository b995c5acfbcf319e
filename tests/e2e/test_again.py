"""Tests of `hopyard replay --execute`: repeated training from the journal gives the same bits, and differences are named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import json
import os
from pathlib import Path

import numpy as np

from hopyard.trainer import Trainer


class Walk(Trainer):
    def build(self, hp):
        self.random = np.random.default_rng(self.context.seed)
        self.at = 0.0

    def setup(self, hp, changed):
        self.step = hp["step"]

    def train(self):
        self.at += self.step * self.random.normal() + float(Path(os.environ["NUDGE"]).read_text())
        return {"height": self.at}

    def save(self, folder):
        (folder / "state.json").write_text(json.dumps([self.at, self.random.bit_generator.state]))

    def load(self, folder):
        self.at, self.random.bit_generator.state = json.loads((folder / "state.json").read_text())
"""

SPEC = """
name: walking
trainer: train.py:Walk
metric: {name: height, mode: max}
space: {step: {uniform: [0.1, 1.0]}}
generator: {name: random, seed: 3}
policy: {name: asha, r: 1, eta: 2}
stop: {jobs: 8, max_iterations: 8}
environment: {NUDGE: %s}
"""


def hopyard(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hopyard.cli.main", *words], capture_output=True, text=True, check=False
    )


def again(data: Path, *words: str) -> tuple[int, dict[str, Any]]:
    done = hopyard("replay", "--execute", "--slots", "2", "--data", str(data), "--json", *words)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.timeout(600)
@pytest.mark.nightly
def test_an_asha_run_is_trained_again_to_the_same_bits_and_a_difference_is_named(tmp_path: Path) -> None:
    nudge = tmp_path / "nudge"
    nudge.write_text("0")
    (tmp_path / "train.py").write_text(PROGRAM)
    file, data = tmp_path / "experiment.yaml", tmp_path / "data"
    file.write_text(SPEC % nudge)
    ran = hopyard("run", str(file), "--slots", "2", "--data", str(data), "--json")
    assert ran.returncode == 0, ran.stderr
    reached = {job["id"]: job["position"] for job in json.loads(ran.stdout)["jobs"]}
    assert len(set(reached.values())) > 1  # Some were promoted, others not.

    code, said = again(data)
    assert (code, said["equal"], said["first_difference"]) == (0, True, None)
    assert {job["job"]: job["positions"] for job in said["jobs"]} == reached
    assert {job["job"]: job["reports"] for job in said["jobs"]} == reached
    assert all(job["snapshots"] >= 1 and job["equal"] for job in said["jobs"])

    nudge.write_text("1e-9")
    code, said = again(data, "--job", "2")
    assert (code, [job["job"] for job in said["jobs"]], said["jobs"][0]["equal"]) == (1, ["2"], False)
    assert said["first_difference"].startswith("job 2 at position 1: height is recorded as ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--until", "3", "--execute"),
            "--until and --execute cannot be given together: --job says what is trained again",
        ),
        (("--job", "3"), "--job says what --execute trains; give that, too"),
        (("--slots", "3"), "--slots says what --execute trains; give that, too"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = hopyard("replay", "--data", str(tmp_path), *words)
    assert (done.returncode, done.stderr.strip()) == (2, f"error: {said}")
