"""Tests which variables of the environment reach the jobs and policies of a cluster, and that values of secrets are stored nowhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hopyard.client import Client
from hopyard.client.types import ExperimentState
from tests.e2e.up import Up
from tests.timing import HANG_SECONDS

SECRET = "correct-horse-battery-staple-4711"
NAMES = ["WANDB_API_KEY", "NVIDIA_API_KEY", "NOT_NAMED", "PATH", "HOPYARD_DATA", "HOPYARD_USER_TOKEN"]

SEEN = f"""
import json, os
def write(name):
    seen = {{name: os.environ[name] for name in {NAMES} if name in os.environ}}
    with open(os.path.join(os.environ["HOME"], name), "w") as file:
        json.dump(seen, file)
"""
PROGRAMS: dict[str, tuple[dict[str, Any], str]] = {
    "trainer": (
        {"trainer": "train.py:Seen"},
        "from seen import write\nfrom hopyard.trainer import Trainer\n"
        "class Seen(Trainer):\n"
        "    def build(self, hyperparameters):\n        write('trainer')\n"
        "    def setup(self, hyperparameters, changed):\n        pass\n"
        "    def train(self):\n        return {'loss': 1.0}\n"
        "    def save(self, directory):\n        (directory / 'x').write_text('')\n"
        "    def load(self, directory):\n        pass\n",
    ),
    "script": (
        {"command": ["python", "train.py"]},
        "from seen import write\nimport hopyard\nwrite('script')\nhopyard.report(loss=1.0)\n",
    ),
    "log": (
        {"log": {"command": ["python", "train.py"], "metrics": {"loss": "loss=(.*)"}}},
        "from seen import write\nwrite('log')\nprint('loss=1.0', flush=True)\n",
    ),
}
POLICY = """
from hopyard_policies.default import DefaultPolicy
from seen import write
write("policy")
class Mine(DefaultPolicy):
    pass
"""


def experiment(folder: Path, kind: str, **changes: Any) -> Path:
    """Write an experiment whose program writes the variables that it sees into the file `kind` in its home; return its file."""
    folder.mkdir(parents=True)
    fields, code = PROGRAMS[kind]
    (folder / "seen.py").write_text(SEEN)
    (folder / "train.py").write_text(code)
    spec = {
        "name": kind,
        **fields,
        "metric": {"name": "loss", "mode": "min"},
        "space": {"x": {"choice": [1]}},
        "generator": "grid",
        "stop": {"max_iterations": 1},
        "snapshot": {"provider": "framework"},
        **changes,
    }
    (folder / "experiment.yaml").write_text(yaml.safe_dump(spec))
    return folder / "experiment.yaml"


def seen(home: Path, kind: str) -> dict[str, str]:
    """Return the variables that a process saw, and delete its file, which has the mode that the user's umask gives."""
    umask = os.umask(0)
    os.umask(umask)
    assert (home / kind).stat().st_mode & 0o777 == 0o666 & ~umask
    found: dict[str, str] = json.loads((home / kind).read_text())
    (home / kind).unlink()
    return found


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of the user, whose environment has secrets."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("WANDB_API_KEY", "NVIDIA_API_KEY"):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("NOT_NAMED", "x")
    monkeypatch.setenv("HOPYARD_USER_TOKEN", SECRET)
    return folder


@pytest.fixture
def up(tmp_path: Path, home: Path) -> Iterator[Up]:
    running = Up(tmp_path / "data", NAMED="by the node")
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.stop()


@pytest.mark.timeout(300)
def test_jobs_of_a_cluster_get_secrets_only_by_name_and_nothing_stores_them(up: Up, home: Path, tmp_path: Path) -> None:
    up.wait_for("the cluster is up")
    inherits = {"inherit_environment": ["WANDB_API_KEY"]}
    with Client(server=up.server, patience=HANG_SECONDS) as client:
        for kind in PROGRAMS:
            for changes, more in (({}, {}), (inherits, {"WANDB_API_KEY": SECRET})):
                file = experiment(tmp_path / f"{kind}-{len(changes)}", kind, **changes)
                ended = client.wait(client.create(file).id, timeout=HANG_SECONDS)
                assert ended.state is ExperimentState.COMPLETED, ended.reason
                found = seen(home, kind)
                assert found.pop("PATH")
                assert found == more, kind
        (tmp_path / "policy").mkdir()
        policy = experiment(tmp_path / "policy" / "code", "script", policy="mine:Mine", **inherits)
        (policy.parent / "mine.py").write_text(POLICY)
        ended = client.wait(client.create(policy).id, timeout=HANG_SECONDS)
        assert ended.state is ExperimentState.COMPLETED, ended.reason
        assert set(seen(home, "policy")) == {"PATH"}, "the names that an experiment inherits are for its program"
        client.export_experiment(ended.id, tmp_path / "experiment.hopyard")
        absent = experiment(tmp_path / "absent", "script", inherit_environment=["WANDB_API_KEY", "NOT_SET"])
        failed = client.wait(client.create(absent).id, timeout=HANG_SECONDS)
        assert failed.state is ExperimentState.FAILED
        assert "inherit_environment: NOT_SET is not set on node node" in str(failed.reason)
    assert up.stop() == 0
    shutil.unpack_archive(tmp_path / "experiment.hopyard", tmp_path / "data" / "unpacked", format="zip")
    holders = [
        path for path in (tmp_path / "data").rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    assert holders == []
    assert SECRET not in "".join(up.said)


@pytest.mark.timeout(120)
def test_a_local_cluster_passes_the_environment_of_its_user(home: Path, tmp_path: Path) -> None:
    file = experiment(tmp_path / "code", "script")
    done = subprocess.run(
        [sys.executable, "-m", "hopyard.cli.main", "run", str(file), "--data", str(tmp_path / "data")],
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        env={**os.environ, "HOPYARD_DATA": str(tmp_path / "elsewhere")},
    )
    assert done.returncode == 0, done.stderr
    found = seen(home, "script")
    assert found.pop("PATH")
    assert found == {"WANDB_API_KEY": SECRET, "NVIDIA_API_KEY": SECRET, "NOT_NAMED": "x"}
