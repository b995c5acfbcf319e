"""Tests of clients with their own clusters, one of whose processes does not serve or ends."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import psutil
import pytest

from hopyard.client import Client
from hopyard.client.types import JobReport
from hopyard.errors import Unavailable

TRAINER = """
import time

from hopyard.trainer import Trainer


class Endless(Trainer):
    def setup(self, hyperparameters, changed):
        pass

    def train(self):
        time.sleep(0.05)
        return {"accuracy": 1.0}

    def save(self, folder):
        (folder / "state").write_text("1")

    def load(self, folder):
        pass
"""

EXPERIMENT = {
    "name": "endless",
    "trainer": "train.py:Endless",
    "metric": {"name": "accuracy", "mode": "max"},
    "space": {"x": {"uniform": [0.1, 1.0]}},
    "stop": {"jobs": 1, "max_iterations": 1_000_000},
}


def agent_process(data: Path) -> int:
    """Return the process id of the node agent of a local cluster."""
    (found,) = [
        process.pid
        for process in psutil.Process().children()
        if {"hopyard_nodeagent", str(data / "agent")} <= set(process.cmdline())
    ]
    return found


def test_a_client_whose_agent_belongs_to_another_cluster_does_not_open(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "agent"
    folder.mkdir(parents=True)
    (folder / "agent.cluster").write_text("0123456789abcdef0123456789abcdef")
    with pytest.raises(Unavailable, match=r"agent ended \(exit code 1\)") as raised, Client.local(tmp_path / "data"):
        pass
    assert re.search(
        "belongs to cluster 0123456789abcdef0123456789abcdef, and this scheduler serves", str(raised.value)
    )


def test_calls_fail_after_the_agent_has_died(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINER)
    with Client.local(tmp_path / "data") as client:
        experiment = client.create(EXPERIMENT, tmp_path)
        agent = agent_process(tmp_path / "data")
        died = r"agent ended \(signal SIGKILL\)"
        changes = client.watch(experiment)
        next(change for change in changes if isinstance(change, JobReport))
        os.kill(agent, signal.SIGKILL)
        with pytest.raises(Unavailable, match=died):
            list(changes)
        with pytest.raises(Unavailable, match=died):
            client.get(experiment)
