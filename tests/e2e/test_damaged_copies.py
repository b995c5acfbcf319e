"""Tests of code that the store has lost: what a person sees, after how many attempts, and the command that sends it again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hopyard.client import Client
from hopyard.client.types import ExperimentState
from tests.damage import flip, replace_by_link
from tests.timing import HANG_SECONDS

TRAINER = """
from hopyard.trainer import Trainer


class Counter(Trainer):
    def setup(self, hyperparameters, changed):
        self.x = hyperparameters["x"]

    def train(self):
        return {"accuracy": self.x * (self.position + 1)}

    def save(self, folder):
        (folder / "state").write_text(f"position {self.position} of a training")

    def load(self, folder):
        assert (folder / "state").read_text().startswith("position")
"""

EXPERIMENT = """
name: counting
trainer: train.py:Counter
metric: {name: accuracy, mode: max}
space: {x: {uniform: [0.1, 1.0]}}
seed: 1
stop: {jobs: 2, max_iterations: 4}
snapshot: {every: 2, keep_latest: 2}
"""


def hopyard(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hopyard.cli.main", *arguments]
    return subprocess.run(
        command,
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        env={**os.environ, "COLUMNS": "300"},
    )


DAMAGES: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "truncated": lambda file: os.truncate(file, 10),
    "a link": lambda file: replace_by_link(file, file.parent.parent.parent / "elsewhere"),
    "a flipped bit": flip,
}


def submitted(folder: Path) -> str:
    """Create an experiment of which no job has trained, and no node has the code; return the hash of its code."""
    code = folder / "code"
    code.mkdir()
    (code / "train.py").write_text(TRAINER)
    (code / "experiment.yaml").write_text(EXPERIMENT)
    with Client.local(folder / "hopyard-data", slots=0) as client:
        created = client.create(code / "experiment.yaml")
        client.pause(created)
        client.wait(created, timeout=HANG_SECONDS, until={ExperimentState.PAUSED})
        return created.bundle


@pytest.mark.parametrize(
    "kind",
    [kind if kind == "a flipped bit" else pytest.param(kind, marks=pytest.mark.nightly) for kind in DAMAGES],
)
def test_code_that_the_store_has_lost_pauses_at_once_and_is_sent_again(tmp_path: Path, kind: str) -> None:
    bundle = submitted(tmp_path)
    blob = tmp_path / "hopyard-data" / "store" / bundle[:2] / bundle
    DAMAGES[kind](blob)
    resumed = hopyard(tmp_path, "resume", "counting", "--slots", "1", "--json")
    assert resumed.returncode == 1, resumed.stderr
    found = json.loads(resumed.stdout)
    assert (found["experiment"]["state"], found["experiment"]["reason_code"]) == ("PAUSED", "CODE_MISSING")
    name = found["experiment"]["id"]
    assert f"hopyard resend {name} FOLDER" in resumed.stderr
    assert sum(job["attempt"] for job in found["jobs"]) == 1, "it is noticed by the first attempt"
    assert [job["failures"] for job in found["jobs"]] == [0] * len(found["jobs"])

    (tmp_path / "code" / "train.py").write_text(TRAINER + "# changed\n")
    refused = hopyard(tmp_path, "resend", name, "code")
    assert refused.returncode == 1
    assert f"is not that of experiment {name}" in refused.stderr
    assert "changed or added since the experiment was created: train.py" in refused.stderr
    assert "Traceback" not in refused.stderr

    (tmp_path / "code" / "train.py").write_text(TRAINER)
    os.utime(tmp_path / "code" / "train.py", (0, 0))
    (tmp_path / "code" / "out.csv").write_text("1")
    refused = hopyard(tmp_path, "resend", name, "code")
    assert refused.returncode == 1
    assert "1 of its files is additional to those that were submitted: out.csv" in refused.stderr
    (tmp_path / "code" / ".hopyardignore").write_text("out.csv\n.hopyardignore\n")
    sent = hopyard(tmp_path, "resend", name, "code")
    assert sent.returncode == 0, sent.stderr
    assert f"continue it with: hopyard resume {name}" in sent.stdout + sent.stderr
    assert blob.is_file()
    assert not blob.is_symlink()
    assert "nothing is sent" in (again := hopyard(tmp_path, "resend", name, "code")).stdout + again.stderr

    ended = hopyard(tmp_path, "resume", name, "--slots", "1", "--json")
    assert ended.returncode == 0, ended.stderr
    assert [job["state"] for job in json.loads(ended.stdout)["jobs"]] == ["COMPLETED", "COMPLETED"]
    assert hopyard(tmp_path, "replay", name).returncode == 0


def test_the_copy_of_an_agent_is_sent_again_without_the_folder(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(TRAINER)
    (code / "experiment.yaml").write_text(EXPERIMENT)
    assert hopyard(tmp_path, "run", "code/experiment.yaml", "--slots", "1", "--json").returncode == 0
    (blob,) = [file for file in (tmp_path / "hopyard-data" / "store").glob("*/*") if _is_bundle(tmp_path, file)]
    blob.unlink()
    sent = hopyard(tmp_path, "resend")
    assert sent.returncode == 0, sent.stderr
    assert f"agent/.bundles/{blob.name}.packed" in sent.stdout + sent.stderr
    assert blob.is_file()


def _is_bundle(folder: Path, blob: Path) -> bool:
    return (folder / "hopyard-data" / "agent" / ".bundles" / f"{blob.name}.packed").exists()
