"""`hopyard up` restarts what dies, and an experiment goes through it unharmed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hopyard.client import Client
from hopyard.client.types import ExperimentState
from tests.e2e.harness import experiment_file

ROW = re.compile(r"^(\S+)\s+127\.0\.0\.1:(\d+)\s+(\d+)\s")
AGAIN = re.compile(r"^(\S+) serves again \(process (\d+)\)")


class Up:
    """`hopyard up` as a child; what it says about its services is read as it comes."""

    def __init__(self, data: Path) -> None:
        command = [sys.executable, "-m", "hopyard.cli.main", "up", "--data", str(data), "--agents", "2", "--port", "0"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "300"}
        )
        self.pids: dict[str, int] = {}
        self.restarted: set[str] = set()
        self.ports: dict[str, str] = {}
        self.said: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.said.append(line)
                if row := ROW.match(line):
                    self.ports[row[1]], self.pids[row[1]] = row[2], int(row[3])
                if again := AGAIN.match(line):
                    self.pids[again[1]] = int(again[2])
                    self.restarted.add(again[1])
                self._changed.notify_all()

    def wait_for(self, text: str, limit: float = 60) -> None:
        """Until it has said something."""
        with self._changed:
            found = self._changed.wait_for(lambda: any(text in line for line in self.said), limit)
        assert found, "".join(self.said)

    def stop(self) -> int:
        """What Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(60)
        self._reader.join(10)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    running = Up(tmp_path / "data")
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.stop()


@pytest.mark.timeout(240)
def test_every_service_killed_once_in_an_experiment(up: Up, tmp_path: Path) -> None:
    up.wait_for("the cluster is up")
    assert set(up.pids) == {"appstat", "hpgen", "scheduler", "agent-node1", "agent-node2"}
    file = experiment_file(
        tmp_path / "digits", stop={"jobs": 8, "max_iterations": 10}, metric={"name": "accuracy", "mode": "max"}
    )
    with Client(server=f"127.0.0.1:{up.ports['scheduler']}", patience=60) as client:
        experiment = client.create(file)
        for name in ("scheduler", "appstat", "hpgen", "agent-node1"):
            os.kill(up.pids[name], signal.SIGKILL)
            up.wait_for(f"{name} serves again")
        ended = client.wait(experiment.id, timeout=150)
        assert ended.state is ExperimentState.COMPLETED, ended.reason
        jobs = client.jobs(experiment.id)
        assert [(job.state.value, job.position) for job in jobs] == [("COMPLETED", 10)] * 8
        for job in jobs:
            positions = [s.report.position for s in client.statistics(experiment.id, job.id)]
            assert positions == list(range(1, 11))
    assert up.stop() == 0
