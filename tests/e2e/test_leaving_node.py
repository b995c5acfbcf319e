"""Test that a search loses no training when the agent of a node is stopped while jobs train on it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import Experiment, ExperimentState, Job, JobState, NodeState
from tests.e2e.harness import cluster
from tests.timing import HANG_SECONDS, scaled

JOBS, LENGTH = 4, 12

TRAINER = '''
import json, os, time
from pathlib import Path
from hopyard.trainer import Trainer

HERE = Path({folder!r})


class Counter(Trainer):
    """Counts its iterations, and notes each in a file. At position 6 it waits until the gate is open.

    Until the node has been left, each later iteration takes so long that a command, which the scheduler has sent when the gate opens,
    arrives long before the last one.
    """

    def build(self, hp):
        self.count = 0

    def setup(self, hp, changed):
        pass

    def train(self):
        while self.position >= 6 and not (HERE / "gate").exists():
            time.sleep(0.05)
        if self.position >= 6 and not (HERE / "left").exists():
            time.sleep({pause})
        with (HERE / "iterations").open("a") as file:
            file.write(f"{{self.context.job}} {{self.position + 1}}\\n")
        self.count += 1
        return {{"accuracy": float(self.count)}}

    def save(self, folder):
        (folder / "count.json").write_text(json.dumps(self.count))

    def load(self, folder):
        self.count = json.loads((folder / "count.json").read_text())
'''

EXPERIMENT = """
name: counting
trainer: train.py:Counter
metric: {{name: accuracy, mode: max}}
space: {{lr: {{uniform: [0.0, 1.0]}}}}
stop: {{jobs: {jobs}, max_iterations: {length}}}
snapshot: {{provider: framework, every: 5, ship_every: {ship_every}}}
"""


async def trained(client: AsyncClient, experiment: Experiment, node: str, position: int) -> Job:
    """Wait for a job that trains on a node and has reached a position; return it."""
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            present = await client.get(experiment.id)
            assert not present.state.ended, present.reason
            for job in await client.jobs(experiment, JobState.RUNNING):
                if job.position >= position and any(slot.startswith(f"{node}/") for slot in job.slots):
                    return job
            await asyncio.sleep(0.05)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ship_every", [1, 0])
async def test_no_training_is_repeated_when_an_agent_is_stopped_in_order(tmp_path: Path, ship_every: int) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text(TRAINER.format(folder=str(tmp_path), pause=scaled(0.5)))
    file = folder / "experiment.yaml"
    file.write_text(EXPERIMENT.format(jobs=JOBS, length=LENGTH, ship_every=ship_every))
    async with cluster(tmp_path / "data", {}) as (processes, client):
        for node in ("a", "b"):
            await processes.start_agent(node, 1, "--grace", f"{HANG_SECONDS:g}")
        experiment = await client.create(file)
        job = await trained(client, experiment, "a", 6)  # Its last periodic snapshot is older.
        agent = processes.running.pop("a")
        assert agent.pid is not None
        os.kill(agent.pid, signal.SIGTERM)
        async with asyncio.timeout(HANG_SECONDS):
            while (await client.job(experiment, job.id)).state is not JobState.SUSPENDING:  # noqa: ASYNC110 - other processes
                await asyncio.sleep(0.05)
        (tmp_path / "gate").touch()
        assert await agent.wait() == 0
        (tmp_path / "left").touch()
        ended = await client.wait(experiment, timeout=HANG_SECONDS)
        assert ended.state is ExperimentState.COMPLETED
        suspended = await client.job(experiment, job.id)
        assert (suspended.suspends, suspended.attempt) == (1, 2)
        lines = (tmp_path / "iterations").read_text().splitlines()
        assert sorted(lines) == sorted(f"{one + 1} {position + 1}" for one in range(JOBS) for position in range(LENGTH))
        assert {node.id: node.state for node in await client.nodes()} == {"a": NodeState.LOST, "b": NodeState.UP}
