"""Tests of few configurations on partitioned data with real processes: gangs with one configuration, hops with four."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from hopyard.client import AsyncClient
from hopyard.client.datasets import DataPartition, DataReplica
from hopyard.client.types import JobState
from hopyard.model_hopper.batches import ends
from hopyard.policy import RunMode
from tests.e2e.harness import cluster
from tests.e2e.units import Unit, check_apart, histories, journal, units_of
from tests.timing import HANG_SECONDS, scaled

pytestmark = pytest.mark.nightly

NODES = ("g1", "g2", "g3", "g4")
COUNTS = (16, 16, 24, 9)
SIZE = 32
EPOCHS = 3
SECONDS = scaled(5.0)
"""The most seconds that a trained model waits in each unit, while other configurations are created. Profiling waits, too."""

PROGRAM = f"""
import os
import time

import numpy as np
import torch
from torch import nn

from hopyard import model_hopper


def input_fn(path):
    with np.load(path) as file:
        return torch.from_numpy(file["x"]), torch.from_numpy(file["y"])


def model_fn(config):
    model = nn.Linear(4, 2)
    return model, torch.optim.Adam(model.parameters(), lr=config["lr"])


def train_fn(data, model, optimizer, config):
    end = time.monotonic() + ({SECONDS} if optimizer.state else 0.0)
    while time.monotonic() < end and not os.path.exists(os.environ["ENOUGH"]):
        time.sleep(0.02)
    for x, y in model_hopper.batches(data, {SIZE}):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return {{"examples": float(len(data[0]))}}


def evaluate_fn(data, model, config):
    x, y = data
    return {{"accuracy": (model(x).argmax(1) == y).double().mean().item()}}


TRAINER = model_hopper.trainer(input_fn=input_fn, model_fn=model_fn, train_fn=train_fn, evaluate_fn=evaluate_fn)
"""

SPEC = f"""
name: together
trainer: train.py:TRAINER
metric: {{name: accuracy, mode: max}}
space: {{lr: {{choice: [0.1, 0.03, 0.01, 0.003]}}}}
generator: grid
data: points
policy: mop
snapshot: {{every: 1, keep_best: 0}}
stop: {{jobs: 1, max_iterations: {EPOCHS * len(NODES)}}}
unit: units
"""


async def registered(client: AsyncClient, folder: Path) -> None:
    """Register a partition of different size on each node, and one to evaluate on."""
    held = [(f"train/{number}", node, count) for number, (node, count) in enumerate(zip(NODES, COUNTS, strict=True))]
    partitions = []
    for seed, (name, node, count) in enumerate([*held, ("eval/0", "g2", 40)]):
        file = folder / f"{name.replace('/', '-')}.npz"
        x = np.random.default_rng(seed).normal(size=(count, 4)).astype(np.float32)
        np.savez(file, x=x, y=(x.sum(axis=1) > 0).astype(np.int64))
        partitions.append(DataPartition(name, replicas=(DataReplica(node, str(file)),)))
    await client.register_data("points", partitions)


def steps(units: Sequence[Unit], job: str) -> int:
    """Return the number of optimizer steps of a job: those of its hops, and those of the batches of its gangs."""
    counts = {f"train/{number}": count for number, count in enumerate(COUNTS)}
    mine = [unit for unit in units if unit.key.job == job and unit.mode is RunMode.TRAIN]
    total = 0
    for unit in (unit for unit in mine if unit.saved):
        those = [counts[each.partition] for each in mine if each.key.attempt == unit.key.attempt]
        total += len(list(ends(those, SIZE))) if len(those) > 1 else -(-those[0] // SIZE)
    return total


async def test_one_configuration_trains_on_all_nodes_at_once_and_hops_when_there_are_four(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enough = tmp_path / "enough"
    monkeypatch.setenv("ENOUGH", str(enough))  # Until that file exists, a unit is slow.
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(PROGRAM)
    (code / "experiment.yaml").write_text(SPEC)
    async with cluster(tmp_path / "cluster", dict.fromkeys(NODES, 1)) as (processes, client):
        await registered(client, tmp_path)
        created = await client.create(code / "experiment.yaml")
        async with asyncio.timeout(HANG_SECONDS):
            while not any(job.position for job in await client.jobs(created)):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)
        await client.extend(created, jobs=3)
        enough.touch()
        ended = await client.wait(created.id, timeout=HANG_SECONDS)
        assert ended.jobs == {"COMPLETED": 4}

        units = units_of(await journal(processes.scheduler, created.id))
        check_apart(units, lost=())
        visits = histories(units)
        for job in await client.jobs(created):
            assert job.state is JobState.COMPLETED
            assert job.failures == 0
            for epoch in range(EPOCHS):
                visited = visits[job.id][epoch * len(NODES) :][: len(NODES)]
                assert sorted(visited) == [f"train/{number}" for number in range(len(NODES))]
            found = await client.download(created, job.id, to=tmp_path / f"model{job.id}", which="newest")
            state = torch.load(found.folder / "state" / "model" / "torch.pt", weights_only=True)
            assert state["optimizer"][""]["state"][0]["step"] == steps(units, job.id)

        first = [unit for unit in units if unit.key.job == "1" and unit.key.rank == 0 and unit.mode is RunMode.TRAIN]
        assert first[0].ranks == len(NODES)
        assert any(unit.ranks == 1 for unit in first)  # It continued with hops, from the gang's snapshot.
        (trial,) = {unit.key.attempt for unit in units if unit.mode is RunMode.PROFILE}
        assert trial == 1
        reports = [one.report for one in await client.statistics(created, "1") if not one.report.part]
        examples = {report.position: report.metrics["examples"] for report in reports}
        # The mean of all ranks, weighted by their examples.
        mean = sum(count * count for count in COUNTS) / sum(COUNTS)
        assert examples[len(NODES)] == pytest.approx(mean)
