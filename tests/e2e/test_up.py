"""Test that `hopyard up` restarts services that end, and that an experiment survives this."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hopyard.client import Client
from hopyard.client.types import ExperimentState
from tests.e2e.harness import softmax_file
from tests.e2e.up import Up
from tests.timing import HANG_SECONDS


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    running = Up(tmp_path / "data", SOFTMAX_PACE="0.2")
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.stop()


@pytest.mark.timeout(240)
def test_every_service_killed_once_in_an_experiment(up: Up, tmp_path: Path) -> None:
    up.wait_for("the cluster is up")
    assert set(up.pids) == {"appstat", "hpgen", "scheduler", "agent-node1", "agent-node2"}
    file = softmax_file(tmp_path / "e", stop={"jobs": 8, "max_iterations": 10})
    with Client(server=up.server, patience=HANG_SECONDS) as client:
        experiment = client.create(file)
        for name in ("scheduler", "appstat", "hpgen", "agent-node1"):
            os.kill(up.pids[name], signal.SIGKILL)
            up.wait_for(f"{name} serves again")
        ended = client.wait(experiment.id, timeout=HANG_SECONDS)
        assert ended.state is ExperimentState.COMPLETED, ended.reason
        jobs = client.jobs(experiment.id)
        assert [(job.state.value, job.position) for job in jobs] == [("COMPLETED", 10)] * 8
        for job in jobs:
            positions = [s.report.position for s in client.statistics(experiment.id, job.id)]
            assert positions == list(range(1, 11))
    assert up.stop() == 0
