"""Tests of model hopper parallelism under tuners with real agents: epochs stay whole when jobs are promoted, ended or copied."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hopyard.client.types import Experiment, ExperimentState, JobState
from hopyard.plots import gather
from hopyard.plots.data.hops import HopPlot
from hopyard.plots.experiments import read_experiment
from hopyard_tools.commands.replay import replay
from tests.integration.scheduler.catalog_cluster import Cluster, partition
from tests.timing import HANG_SECONDS

TRAINER = '''
import json

import numpy as np
from hopyard.trainer import Trainer


class Visiting(Trainer):
    """Adds up what it sees, so that its state tells whether each partition was visited as often as the others."""

    def build(self, hp):
        self.total, self.squares, self.trained = 0.0, 0.0, 0

    def setup(self, hp, changed):
        self.rate = hp["rate"]
        self.value = float(np.load(self.context.inputs)["y"][0])

    def train(self):
        self.total, self.squares, self.trained = self.total + self.value, self.squares + self.value**2, self.trained + 1
        return {}

    def evaluate(self):
        if self.context.mode != "evaluate":
            return {}
        self.examples = 3
        return {"score": self.rate * (1 - 0.5**self.trained), "total": self.total, "squares": self.squares}

    def save(self, folder):
        (folder / "state.json").write_text(json.dumps([self.total, self.squares, self.trained]))

    def load(self, folder):
        self.total, self.squares, self.trained = json.loads((folder / "state.json").read_text())
'''
VALUES = (1.0, 3.0)
"""The values in the two training partitions."""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    made = Cluster(tmp_path)
    await made.start()
    try:
        await made.join("a", "b")
        for number, value in enumerate((*VALUES, 7.0)):
            np.savez(tmp_path / f"{number}.npz", y=np.full(3, value))
        parts = [
            partition("train/0", a=tmp_path / "0.npz"),
            partition("train/1", b=tmp_path / "1.npz"),
            partition("eval/0", b=tmp_path / "2.npz"),
        ]
        await made.client.register_data("numbers", parts)
        yield made
    finally:
        await made.stop()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text(TRAINER)
    return folder


async def searched(cluster: Cluster, folder: Path, policy: Mapping[str, Any], jobs: int, epochs: int) -> Experiment:
    spec: dict[str, Any] = {
        "name": "visiting",
        "trainer": "train.py:Visiting",
        "metric": {"name": "score", "mode": "max"},
        "space": {"rate": {"uniform": [0.1, 0.9]}},
        "policy": {"name": "mop", **policy},
        "data": "numbers",
        "stop": {"jobs": jobs, "max_iterations": epochs * len(VALUES)},
        "snapshot": {"every": 1, "keep_best": 0},
        "unit": "units",
    }
    created = await cluster.client.create(spec, folder)
    ended = await cluster.client.wait(created, timeout=HANG_SECONDS)
    assert ended.state is ExperimentState.COMPLETED, ended.reason
    await whole_epochs(cluster, ended)
    assert await replay(ended.id, None, cluster.address, None, False)
    return ended


async def whole_epochs(cluster: Cluster, found: Experiment) -> None:
    """Check that each job visited each partition once in each epoch, by its state and by the journal."""
    reports = [one.report for one in await cluster.client.statistics(found) if one.report.part]
    for report in reports:
        epochs = report.position / len(VALUES)
        assert (report.metrics["total"], report.metrics["squares"]) == (
            epochs * sum(VALUES),
            epochs * sum(value**2 for value in VALUES),
        )
    shown: HopPlot = gather([await read_experiment(cluster.client, found, "hops")], "hops")
    visited: defaultdict[str, list[str]] = defaultdict(list)
    for visit in shown.visits:
        if not visit.evaluates and visit.reason == "UNTIL":
            visited[visit.job].append(visit.partition)
    for names in visited.values():
        assert all(set(names[at : at + 2]) == {"train/0", "train/1"} for at in range(0, len(names), 2)), visited
    assert (shown.hops, shown.moved[-1][1]) == (found.hops.direct, found.hops.direct_bytes)
    assert shown.storage.copies == 2 * shown.storage.held


@pytest.mark.timeout(600)
async def test_tuners_end_promote_and_copy_models_that_hop(cluster: Cluster, code: Path) -> None:
    asha = {"tuner": {"name": "asha", "eta": 2, "r": 1, "brackets": [0]}, "configurations": 2}
    found = await searched(cluster, code, asha, jobs=4, epochs=4)
    came = {job.id: job.position // 2 for job in await cluster.client.jobs(found)}
    assert sorted(came.values())[-1] == 4
    assert sorted(came.values())[0] == 1

    hyperband = {"tuner": {"name": "hyperband", "eta": 2}, "barrier": True}
    found = await searched(cluster, code, hyperband, jobs=4, epochs=2)
    jobs = await cluster.client.jobs(found)
    assert sorted(job.position for job in jobs) == [2, 4, 4, 4]
    (ended,) = [job for job in jobs if job.state is JobState.TERMINATED]
    (better,) = [job for job in jobs[:2] if job is not ended]
    assert better.hyperparameters["rate"] > ended.hyperparameters["rate"]

    pbt = {"tuner": {"name": "pbt", "population": 4, "interval": 1, "truncation": 0.5}}
    found = await searched(cluster, code, pbt, jobs=4, epochs=3)
    jobs = await cluster.client.jobs(found)
    copies = [job for job in jobs if job.parent]
    assert copies
    assert all(job.fork_position % 2 == 0 for job in copies)
    assert sum(job.state is JobState.COMPLETED for job in jobs) == 4
