"""Tests of a job that trains on one slot and on two in turn, as other experiments start and end, with real processes."""

from __future__ import annotations

import re
import runpy
import shutil
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from gang_kills import CODE

from hopyard.client import AsyncClient
from hopyard.client.types import Experiment, Job, JobState
from hopyard.spec import configuration_seed
from hopyard.trainer import TrainerContext, TrainerDriver
from hopyard_nodeagent.hardware.description import cpus
from tests.e2e.harness import cluster
from tests.e2e.test_gangs import hopyard, seen
from tests.timing import scaled

pytestmark = pytest.mark.timeout(300)

EXCHANGE_SECONDS = scaled(8.0)
LONG = 1_000_000
SEED = 7

SLOW = f"""
import os, signal
from pathlib import Path
from train import Regression

class Slow(Regression):
    exchange_timeout = {EXCHANGE_SECONDS}

    def train_batch(self, batch):
        mark = Path(os.environ["SLOW_MARK"])
        if self.context.rank == 1 and mark.exists():
            mark.unlink()
            os.kill(os.getpid(), signal.SIGSTOP)  # Rank 0 waits for its gradients.
        return super().train_batch(batch)
"""


def elastic_file(folder: Path, trainer: str = "train.py:Regression", **policy: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(CODE / "regression.py", folder / "train.py")
    (folder / "slow.py").write_text(SLOW)
    spec = {
        "name": folder.name,
        "trainer": trainer,
        "metric": {"name": "train_loss", "mode": "min"},
        "space": {"lr": {"choice": [0.01]}},
        "seed": SEED,
        "policy": {"name": "default", **policy},
        "stop": {"jobs": 1, "max_iterations": LONG},
    }
    file = folder / "experiment.yaml"
    file.write_text(yaml.safe_dump(spec))
    return file


def alone(scratch: Path, until: int) -> dict[int, float]:
    """Return the losses by position of an uninterrupted training in one process."""
    driver = TrainerDriver(runpy.run_path(str(CODE / "regression.py"))["Regression"], clock=time.monotonic)
    hyperparameters = {"lr": 0.01}
    driver.start(hyperparameters, TrainerContext(seed=configuration_seed(SEED, hyperparameters), scratch=scratch))
    losses = {}
    while driver.position < until:
        report = driver.step()
        losses[report.position] = report.metrics["train_loss"]
    driver.close()
    return losses


async def on(client: AsyncClient, experiment: Experiment, slots: int, attempt: int) -> Job:
    """Wait until the job has trained two positions on `slots` slots, in this attempt or a later one; return it."""

    def there(job: Job) -> bool:
        return job.state is JobState.RUNNING and job.attempt >= attempt and len(job.slots) == slots

    began = await seen(client, experiment, there)
    return await seen(client, experiment, lambda job: there(job) and job.position >= began.position + 2)


async def test_a_job_trains_on_what_others_leave_it_and_learns_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTIC_PACE", "0.1")
    async with cluster(tmp_path / "data", {"a": 1, "b": 1}) as (_, client):
        other = await client.create(elastic_file(tmp_path / "other"))
        await seen(client, other, lambda job: job.state is JobState.RUNNING)
        profile = {"1": 1.0, "2": 0.6}
        experiment = await client.create(elastic_file(tmp_path / "elastic", elastic={"profile": profile, "pause": 1}))
        await on(client, experiment, 1, 1)
        await client.stop(other.id)
        await on(client, experiment, 2, 2)
        await client.create(elastic_file(tmp_path / "third"))
        job = await on(client, experiment, 1, 3)
        reports = [s.report for s in await client.statistics(experiment.id, job.id)]
    assert job.failures == 0
    assert [report.position for report in reports] == list(range(1, len(reports) + 1))
    widths = [report.metrics["slots"] for report in reports]
    assert [width for before, width in pairwise([0.0, *widths]) if width != before] == [1.0, 2.0, 1.0]
    monkeypatch.setenv("ELASTIC_PACE", "0")
    expected = alone(tmp_path, len(reports))
    assert {r.position: r.metrics["train_loss"] for r in reports} == pytest.approx(expected, rel=1e-3)


@pytest.mark.nightly
async def test_a_job_is_profiled_on_all_slots_before_it_starts_and_later_experiments_know_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTIC_PACE", "0.1")
    async with cluster(tmp_path / "data", {"a": 1, "b": 1}) as (processes, client):
        experiment = await client.create(elastic_file(tmp_path / "measured", elastic={"efficiency": 0.0001}))
        # The number of slots then follows from measurements: with so small a model one may be faster than two.
        job = await seen(client, experiment, lambda job: job.state is JobState.RUNNING and job.position >= 1)
        assert (job.attempt, job.failures) == (3, 0)
        story = await hopyard(processes, "events", experiment.id, job.id)
        assert re.findall(r"profiles job 1 on (./0(?:, ./0)?)", story) in (["a/0", "a/0, b/0"], ["b/0", "a/0, b/0"])
        await client.stop(experiment.id)

        again = await client.create(elastic_file(tmp_path / "again", elastic={"efficiency": 0.0001}))
        known = await seen(client, again, lambda job: job.state is JobState.RUNNING and job.position >= 1)
        assert (known.attempt, len(known.slots)) == (1, len(job.slots))
        story = await hopyard(processes, "events", again.id)
        assert re.search(
            rf"measured earlier on {re.escape(cpus())}: a unit takes [\d.e-]+ s on 1, [\d.e-]+ s on 2", story
        )
        await client.stop(again.id)
        await hopyard(processes, "replay", again.id)  # The command fails if a decision differs.


@pytest.mark.nightly
async def test_a_rank_that_does_not_come_to_an_exchange_costs_what_was_trained_since_the_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    monkeypatch.setenv("ELASTIC_PACE", "0.05")
    monkeypatch.setenv("SLOW_MARK", str(mark))
    async with cluster(tmp_path / "data", {"a": 1, "b": 1}) as (processes, client):
        file = elastic_file(tmp_path / "slow", "slow.py:Slow", elastic={"profile": {"2": 1.0}})
        experiment = await client.create(file)
        await on(client, experiment, 2, 1)
        mark.touch()
        job = await on(client, experiment, 2, 2)
        assert job.failures == 0
        story = await hopyard(processes, "events", experiment.id, job.id)
    limit = rf"within {EXCHANGE_SECONDS:g} s \(exchange_timeout\)"
    assert re.search(rf"another rank is gone, or did not come to an exchange {limit}", story)
