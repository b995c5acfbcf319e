"""Tests of model hopper parallelism with real processes: agents that are killed and restarted, and a repeated training."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from hopyard.client import AsyncClient
from hopyard.client.datasets import DataPartition, DataReplica
from hopyard.client.types import JobState
from hopyard_engine.core.events import NodeLost
from tests.e2e.harness import cluster
from tests.e2e.test_data import command, waits
from tests.e2e.units import check_apart, check_carried_out, histories, journal, units_of
from tests.timing import HANG_SECONDS, scaled

NODES = ("g1", "g2", "g3", "g4")
EPOCHS = 2

PROGRAM = """
import json
import os
import time

import numpy as np

from hopyard import model_hopper


class Model:
    def __init__(self, rate):
        self.rate, self.value, self.visits = rate, np.zeros(100), []

    def save(self, directory):
        np.save(directory / "value.npy", self.value)
        (directory / "visits.json").write_text(json.dumps(self.visits))

    def load(self, directory):
        self.value = np.load(directory / "value.npy")
        self.visits = json.loads((directory / "visits.json").read_text())


def input_fn(path):
    return path.stem.replace("-", "/"), np.load(path)


def train_fn(data, model, optimizer, config):
    name, values = data
    while len(model.visits) >= 6 and os.path.exists(os.environ.get("HELD", "")):
        time.sleep(0.02)
    model.visits.append(name)
    model.value += config["rate"] * (values.mean() + np.random.normal(size=100) - model.value)
    return {"value": float(model.value.mean())}


def evaluate_fn(data, model, config):
    return {"score": -float(abs(data[1].mean() - model.value).mean())}, len(data[1])


TRAINER = model_hopper.trainer(
    input_fn=input_fn, model_fn=lambda config: Model(config["rate"]), train_fn=train_fn, evaluate_fn=evaluate_fn
)
"""

SPEC = f"""
name: hopping
trainer: train.py:TRAINER
metric: {{name: score, mode: max}}
space: {{rate: {{choice: [0.1, 0.2, 0.3, 0.4]}}}}
generator: grid
data: numbers
policy: mop
snapshot: {{every: 1, keep_best: 0}}
stop: {{jobs: 4, max_iterations: {EPOCHS * len(NODES)}}}
unit: units
"""


async def registered(client: AsyncClient, folder: Path) -> list[str]:
    """Register a partition on each node with a replica on the next one, and one to evaluate on; return the training partitions."""
    held = {f"train/{number}": (node, NODES[(number + 1) % len(NODES)]) for number, node in enumerate(NODES)}
    partitions = []
    for number, (name, nodes) in enumerate({**held, "eval/0": ("g1", "g4")}.items()):
        replicas = []
        for node in nodes:
            file = folder / node / f"{name.replace('/', '-')}.npy"
            await asyncio.to_thread(file.parent.mkdir, parents=True, exist_ok=True)
            np.save(file, np.arange(10.0) + number)
            replicas.append(DataReplica(node, str(file)))
        partitions.append(DataPartition(name, replicas=tuple(replicas)))
    await client.register_data("numbers", partitions)
    return list(held)


@pytest.mark.timeout(300)
async def test_two_of_four_agents_die_and_one_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = tmp_path / "held"
    held.touch()
    monkeypatch.setenv("HELD", str(held))  # While that file exists, no model trains more than six units.
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(PROGRAM)
    (code / "experiment.yaml").write_text(SPEC)
    async with cluster(tmp_path / "cluster", dict.fromkeys(NODES, 1), "--lease", str(scaled(5.0))) as (
        processes,
        client,
    ):
        at = ("--server", processes.scheduler)
        names = await registered(client, tmp_path / "disks")
        created = await client.create(code / "experiment.yaml")
        async with asyncio.timeout(HANG_SECONDS):
            while sum(job.position for job in await client.jobs(created)) < 10:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)
        for node in ("g2", "g3"):
            os.kill(processes.running[node].pid or 0, signal.SIGKILL)
        held.unlink()
        await waits(client, "it waits for partition train/1 of data set numbers: nodes g2 and g3 are away")
        await processes.running["g2"].stop(HANG_SECONDS)
        await processes.start_agent("g2")
        ended = await client.wait(created.id, timeout=HANG_SECONDS)
        jobs = await client.jobs(created)
        assert (ended.jobs, [job.position for job in jobs]) == ({"COMPLETED": 4}, [EPOCHS * len(NODES)] * 4)

        story = await journal(processes.scheduler, created.id)
        units = units_of(story)
        visits = histories(units)
        for job in jobs:
            assert job.state is JobState.COMPLETED
            for epoch in range(EPOCHS):
                assert sorted(visits[job.id][epoch * len(NODES) :][: len(NODES)]) == names
            found = await client.download(created, job.id, to=tmp_path / f"model{job.id}", which="newest")
            assert json.loads((found.folder / "state" / "model" / "visits.json").read_text()) == visits[job.id]
            parts = [one.report for one in await client.statistics(created, job.id) if one.report.part]
            assert [(one.position, one.part, one.examples) for one in parts] == [(4, "eval/0", 10), (8, "eval/0", 10)]
        lost = sorted({event.node for event in story if isinstance(event, NodeLost)})
        # A busy host may also have stopped the agent of another node for the whole of its short lease.
        assert {"g2", "g3"} <= set(lost)
        check_apart(units, lost)
        check_carried_out(units, {node: tmp_path / "cluster" / node for node in NODES}, lost)

        events = await command("events", created.id, *at)
        assert "no live node holds partition train/1" in events
        assert "partition train/1 is on g2" in events

        said = json.loads(await command("replay", created.id, "--execute", "--slots", "2", "--json", *at))
        assert (said["equal"], said["first_difference"]) == (True, None)
        assert {job["job"]: job["visits"] for job in said["jobs"]} == visits
        assert {(job["positions"], job["evaluations"], job["reports"], job["snapshots"]) for job in said["jobs"]} == {
            (8, 2, 10, 8)
        }
