"""Tests of tuners on a stage tree in a real cluster: no state is trained twice, and each trial has its own complete curve."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from hopyard.client import AsyncClient
from hopyard.client.types import ExperimentState, Job, JobState
from hopyard.sequences import values_at
from hopyard_tools.commands.events import tell
from hopyard_tools.commands.replay import replay
from tests.timing import HANG_SECONDS

TRAINER = '''
import json, math, os
from hopyard.trainer import Trainer


class Walk(Trainer):
    """Its state depends on all values that were in force; it tells in a log what is really trained."""

    def build(self, hp):
        self.x = 0.0

    def setup(self, hp, changed):
        self.rate = hp["rate"] * hp["gain"]

    def train(self):
        self.x = math.sin(3 * self.x + self.rate)
        with open(os.environ["WALK_LOG"], "a") as log:
            log.write(f"{self.context.job} {self.position + 1}\\n")
        return {"accuracy": self.x}

    def save(self, folder):
        (folder / "x.json").write_text(json.dumps(self.x))

    def load(self, folder):
        self.x = json.loads((folder / "x.json").read_text())
'''

LENGTH = 8
OWN = "tests.integration.scheduler.policies:OwnMedian"
STEPS = {"milestones": [4], "values": [0.3, 0.9]}
GRID = {
    "rate": {"sequence": [{"constant": 0.3}, {"multi_step": STEPS}, {"multi_step": {**STEPS, "milestones": [5]}}]},
    "gain": {
        "sequence": [{"constant": 1}, *({"multi_step": {"milestones": [at], "values": [1, 2]}} for at in (3, 6, 7))]
    },
}
MEMBERS = {"rate": {"uniform": [0.1, 1.0]}, "gain": 1}


def rates(lineage: list[Job], until: int) -> list[float]:
    """Return rate * gain at each position: the ancestors' values up to their forks, then the job's own."""
    ends = [job.fork_position for job in lineage[1:]] + [until]
    found = list[float]()
    for job, end in zip(lineage, ends, strict=True):
        while len(found) < end:
            values = values_at(job.hyperparameters, len(found))
            found.append(values["rate"] * values["gain"])
    return found


def lineage(jobs: Mapping[str, Job], name: str) -> list[Job]:
    """Return a job and its ancestors, from whose snapshots it continued, the oldest first."""
    found = [jobs[name]]
    while found[0].parent:
        found.insert(0, jobs[found[0].parent])
    return found


@pytest.mark.parametrize(
    ("policy", "space", "copies", "further"),
    [
        ({"tuner": {"name": "pbt", "population": 4, "interval": 2, "truncation": 0.25}}, MEMBERS, True, 0),
        ({"tuner": {"name": "median", "evaluation_boundary": 2, "least_jobs": 2}}, GRID, False, 0),
        ({"tuner": {"name": OWN, "evaluation_boundary": 2, "least_jobs": 2}}, GRID, False, 0),
        ({"tuner": {"name": "hyperband", "eta": 2}}, GRID, False, 0),
        ({"tuner": {"name": "sha", "eta": 2, "r": 2}, "train_best_further": 3}, GRID, False, 3),
    ],
    ids=["pbt", "median", "one's own", "hyperband", "sha, the best further"],
)
async def test_a_tuners_trials_are_trained_once(
    client: AsyncClient,
    address: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    policy: Mapping[str, Any],
    space: Mapping[str, Any],
    copies: bool,
    further: int,
) -> None:
    log, folder = tmp_path / "log", tmp_path / "e"
    folder.mkdir()
    (folder / "train.py").write_text(TRAINER)
    file = folder / "walk.yaml"
    spec = {
        "name": "walk",
        "trainer": "train.py:Walk",
        "metric": {"name": "accuracy", "mode": "max"},
        "space": space,
        "generator": {"name": "random", "seed": 3} if copies else "grid",
        "policy": {"name": "stage_tree", **policy},
        "environment": {"WALK_LOG": str(log)},
        "stop": {"max_iterations": LENGTH, **({"jobs": 4} if copies else {})},
    }
    file.write_text(yaml.safe_dump(spec))
    ended = await client.wait(await client.create(file), timeout=HANG_SECONDS)
    assert ended.state is ExperimentState.COMPLETED, ended.reason
    jobs = {job.id: job for job in await client.jobs(ended.id)}
    trained = Counter[tuple[float, ...]]()
    for line in log.read_text().splitlines():
        who, where = line.split()
        trained[tuple(rates(lineage(jobs, who), int(where)))] += 1
    assert set(trained.values()) == {1}
    whole = 0
    for name, job in jobs.items():
        curve = {point.position: point.value for point in await client.curve(ended.id, name)}
        assert job.state in (JobState.COMPLETED, JobState.TERMINATED)
        x, expected = 0.0, dict[int, float]()
        for position, rate in enumerate(rates(lineage(jobs, name), max(curve)), 1):
            x = expected[position] = math.sin(3 * x + rate)
            assert tuple(rates(lineage(jobs, name), position)) in trained
        assert curve == {position: pytest.approx(value, rel=1e-12) for position, value in expected.items()}
        whole += len(curve)
    assert len(trained) < whole
    ends = Counter(job.position for job in jobs.values() if job.state is JobState.COMPLETED)
    assert ends[LENGTH] >= 1
    assert ends[LENGTH + further] >= 1
    assert any(job.parent and job.hyperparameters != jobs[job.parent].hyperparameters for job in jobs.values())
    capfd.readouterr()
    assert await replay(ended.id, None, address, None, False)
    capfd.readouterr()
    await tell(ended.id, None, False, address, None, False)
    in_a_process = policy["tuner"]["name"] == OWN
    assert ("a process of the policy connected" in capfd.readouterr().out) is in_a_process
