"""Tests of jobs on several slots with real processes: undisturbed, moved, after kills of ranks and agents, and in competition."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hopyard.client import AsyncClient
from hopyard.client.types import Experiment, ExperimentState, Job, JobState
from tests.e2e import gang_trainer
from tests.e2e.harness import Processes, cluster
from tests.e2e.units import journal, units_of
from tests.timing import HANG_SECONDS

PATIENCE = HANG_SECONDS
LONG, LATE = 120, 60
"""Iterations of a job that a test disturbs, and the position from which they are slow, so that the job does not end before."""

pytestmark = pytest.mark.timeout(300)


def gang_file(folder: Path, *, size: int = 2, stretch: int = 0, jobs: int = 1, length: int = 12, **space: Any) -> Path:
    """Write an experiment whose jobs need `size` slots at once; `space` adds hyperparameters with one value each. Return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(gang_trainer.__file__, folder / "train.py")
    spec = {
        "name": folder.name,
        "trainer": "train.py:Linear",
        "metric": {"name": "loss", "mode": "min"},
        "space": {"lr": {"choice": [0.1] if jobs == 1 else [0.05, 0.1, 0.2]}}
        | {name: {"choice": [value]} for name, value in space.items()},
        "generator": {"name": "random", "seed": 3},
        "policy": {"name": "tests.e2e.gang_policies:Gangs", "size": size, "stretch": stretch},
        "stop": {"jobs": jobs, "max_iterations": length, "max_failures": 1},
        "snapshot": {"provider": "framework", "every": 3},
    }
    file = folder / "experiment.yaml"
    file.write_text(yaml.safe_dump(spec))
    return file


async def curve(client: AsyncClient, experiment: Experiment, job: str) -> dict[int, str]:
    """Return a job's losses by position as hexadecimal floats; fail if a position is missing or recorded twice."""
    reports = [s.report for s in await client.statistics(experiment.id, job)]
    assert [r.position for r in reports] == list(range(1, len(reports) + 1))
    return {r.position: r.metrics["loss"].hex() for r in reports}


async def completed(client: AsyncClient, experiment: Experiment) -> list[Job]:
    """Wait until the experiment is complete, and return its jobs."""
    ended = await client.wait(experiment.id, timeout=PATIENCE)
    jobs = await client.jobs(experiment.id)
    assert ended.state is ExperimentState.COMPLETED, (ended.reason, [(job.id, job.reason) for job in jobs])
    assert {job.state for job in jobs} == {JobState.COMPLETED}, [(job.id, job.reason) for job in jobs]
    return jobs


async def seen(client: AsyncClient, experiment: Experiment, condition: Callable[[Job], bool]) -> Job:
    """Wait for the first change of a job that satisfies a condition, and return the job."""
    async with asyncio.timeout(PATIENCE):
        async for change in client.watch(experiment.id):
            if isinstance(change, Job) and condition(change):
                return change
    raise AssertionError("the experiment ended first")


async def log(client: AsyncClient, experiment: Experiment, job: str, rank: int) -> str:
    """Return the log of a rank on all nodes."""
    return b"".join([chunk.data async for chunk in client.logs(experiment.id, job, rank=rank)]).decode()


async def process(client: AsyncClient, experiment: Experiment, job: str, rank: int) -> int:
    """Return the id of the newest process of a rank."""
    text = await log(client, experiment, job, rank)
    return int(re.findall(rf"rank {rank} of 2 is process (\d+)", text)[-1])


async def hopyard(processes: Processes, *arguments: str) -> str:
    """Return the output of a command."""
    command = [sys.executable, "-m", "hopyard.cli.main", *arguments, "--server", processes.scheduler]
    wide = {**os.environ, "COLUMNS": "200"}
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=wide)
    out, _ = await child.communicate()
    assert child.returncode == 0
    return out.decode()


async def undisturbed(client: AsyncClient, folder: Path, length: int = 12) -> dict[int, str]:
    """Return the curve of an undisturbed job on two slots."""
    experiment = await client.create(gang_file(folder, length=length))
    (job,) = await completed(client, experiment)
    assert job.attempt == 1
    return await curve(client, experiment, job.id)


async def test_two_ranks_on_one_agent_are_seen_by_everybody(tmp_path: Path) -> None:
    async with cluster(tmp_path / "data", {"a": 2}) as (processes, client):
        experiment = await client.create(gang_file(tmp_path / "pair", length=100_000, seconds=0.02))
        running = await seen(client, experiment, lambda job: job.position >= 2)
        assert running.slots == ("a/0", "a/1")

        assert re.search(r"a/0 a/1", await hopyard(processes, "jobs", experiment.id))
        nodes = await hopyard(processes, "nodes")
        assert re.search(rf"a/0 .*{experiment.id} job 1 rank 0 of 2", nodes)
        assert re.search(rf"a/1 .*{experiment.id} job 1 rank 1 of 2", nodes)
        assert "rank 0 of 2 is process" in await hopyard(processes, "logs", experiment.id, "1")
        assert "rank 1 of 2 is process" in await hopyard(processes, "logs", experiment.id, "1", "--rank", "1")
        assert "starts job 1 on a/0, a/1" in await hopyard(processes, "events", experiment.id, "1")
        await client.stop(experiment.id)
        ended = await client.wait(experiment.id, timeout=PATIENCE)
        assert ended.state is ExperimentState.STOPPED


@pytest.mark.nightly
async def test_a_gang_that_moves_between_agents_trains_what_it_would_have_undisturbed(tmp_path: Path) -> None:
    async with cluster(tmp_path / "data", {"a": 1, "b": 1}) as (processes, client):
        expected = await undisturbed(client, tmp_path / "whole")
        experiment = await client.create(gang_file(tmp_path / "moving", stretch=3))
        (job,) = await completed(client, experiment)
        units = units_of(await journal(processes.scheduler, experiment.id))
        placed = [(unit.key.attempt, unit.key.rank, unit.node) for unit in units]
        there, back = [("a", "b"), ("b", "a")]
        runs = enumerate((there, back, there, back), 1)
        assert sorted(placed) == [(attempt, rank, node) for attempt, run in runs for rank, node in enumerate(run)]
        assert job.attempt == 4
        assert await curve(client, experiment, job.id) == expected
        # Runners are reused: a rank moves between slots, while the process of a slot stays the same.
        for rank in (0, 1):
            text = await log(client, experiment, job.id, rank)
            assert len(re.findall("is process", text)) == 4
        ranks = [await log(client, experiment, job.id, rank) for rank in (0, 1)]
        assert len(set(re.findall(r"is process (\d+)", "".join(ranks)))) == 2
        rendezvous = [re.findall(r"gang \S+ (\S+)", text) for text in ranks]
        assert sorted(rendezvous[0]) == sorted(rendezvous[1])
        assert len(rendezvous[0]) == 4
        assert len(set(rendezvous[0])) > 1  # The system may choose a port twice.


TORCH = """
import torch
import torch.distributed as dist

from hopyard import Trainer


class Sum(Trainer):
    def build(self, hyperparameters):
        dist.init_process_group("gloo")  # Everything it needs stands in the environment.
        self.total = torch.zeros(2)

    def setup(self, hyperparameters, changed): ...

    def train(self):
        mine = torch.full((2,), float(dist.get_rank() + 1))
        dist.all_reduce(mine)
        self.total += mine
        return {"loss": float(self.total.sum()), "world": float(dist.get_world_size())}

    def save(self, directory):
        torch.save(self.total, directory / "total.pt")

    def load(self, directory):
        self.total = torch.load(directory / "total.pt")

    def close(self):
        dist.destroy_process_group()
"""


async def test_torch_distributed_finds_its_gang_in_every_run_anew(tmp_path: Path) -> None:
    file = gang_file(tmp_path / "torch", stretch=2, length=6)
    (file.parent / "train.py").write_text(TORCH)
    file.write_text(file.read_text().replace("train.py:Linear", "train.py:Sum"))
    async with cluster(tmp_path / "data", {"a": 1, "b": 1}) as (_, client):
        experiment = await client.create(file)
        (job,) = await completed(client, experiment)
        assert (job.attempt, job.failures) == (3, 0)
        reports = [s.report for s in await client.statistics(experiment.id, job.id)]
        found = [(r.position, r.metrics["loss"], r.metrics["world"]) for r in reports]
        assert found == [(n, 6.0 * n, 2.0) for n in range(1, 7)]


def paced_file(folder: Path) -> tuple[Path, Path]:
    """Write an experiment of one long job; return its file, and the file whose existence lets it train at full speed."""
    enough = folder.with_suffix(".enough")
    return gang_file(folder, length=LONG, seconds=0.1, late=LATE, enough=str(enough)), enough


@pytest.mark.nightly
async def test_a_gang_survives_pause_and_resume_of_its_experiment(tmp_path: Path) -> None:
    async with cluster(tmp_path / "data", {"a": 1, "b": 1}) as (_, client):
        expected = await undisturbed(client, tmp_path / "whole", LONG)
        file, enough = paced_file(tmp_path / "paused")
        experiment = await client.create(file)
        await seen(client, experiment, lambda job: job.position >= 4)
        await client.pause(experiment.id)
        async with asyncio.timeout(PATIENCE):
            async for change in client.watch(experiment.id):
                if isinstance(change, Experiment) and change.state is ExperimentState.PAUSED:
                    break
        (job,) = await client.jobs(experiment.id)
        assert job.state is JobState.SUSPENDED
        assert 4 <= job.position < LONG
        enough.touch()
        await client.resume(experiment.id)
        (job,) = await completed(client, experiment)
        assert (job.attempt, job.failures) == (2, 0)
        assert await curve(client, experiment, job.id) == expected


@pytest.mark.parametrize("killed", [pytest.param(0, marks=pytest.mark.nightly), 1])
async def test_a_killed_rank_ends_the_run_everywhere_and_the_job_goes_on_from_its_snapshot(
    tmp_path: Path, killed: int
) -> None:
    async with cluster(tmp_path / "data", {"a": 1, "b": 1}) as (processes, client):
        expected = await undisturbed(client, tmp_path / "whole", LONG)
        file, enough = paced_file(tmp_path / "killed")
        experiment = await client.create(file)
        await seen(client, experiment, lambda job: job.position >= 5)
        os.kill(await process(client, experiment, "1", killed), signal.SIGKILL)
        enough.touch()
        (job,) = await completed(client, experiment)
        assert (job.attempt, job.failures) == (2, 0)
        story = await hopyard(processes, "events", experiment.id, "1")
        assert re.search(rf"run 1 of job 1.*(rank {killed} is gone|killed by signal SIGKILL)", story), story
        goes_on = re.search(r"job 1 is SUSPENDED and continues from the snapshot at (\d+)", story)
        assert goes_on, story
        assert int(goes_on[1]) % 3 == 0
        assert re.search(rf"starts job 1 .*attempt 2, from the snapshot at {goes_on[1]}\b", story), story
        assert await curve(client, experiment, job.id) == expected


@pytest.mark.nightly
async def test_the_agent_of_another_rank_killed(tmp_path: Path) -> None:
    async with cluster(tmp_path / "data", {"a": 1, "b": 1, "c": 1}) as (processes, client):
        expected = await undisturbed(client, tmp_path / "whole", LONG)
        file, enough = paced_file(tmp_path / "killed")
        experiment = await client.create(file)
        running = await seen(client, experiment, lambda job: job.position >= 5)
        (first, lost), (spare,) = running.slots, {"a/0", "b/0", "c/0"} - set(running.slots)
        node = lost.partition("/")[0]
        agent = processes.running[node].pid
        assert agent is not None
        os.kill(agent, signal.SIGKILL)
        again = await seen(client, experiment, lambda job: job.attempt == 2 and job.state is JobState.RUNNING)
        assert set(again.slots) == {first, spare}
        enough.touch()
        (job,) = await completed(client, experiment)
        story = await hopyard(processes, "events", experiment.id, "1")
        assert re.search(rf"rank 1 is gone|node {node} is lost", story), story
        assert (job.attempt, job.failures) == (2, 0)
        assert await curve(client, experiment, job.id) == expected


async def test_a_rank_whose_code_fails_fails_the_job_once_and_it_goes_on(tmp_path: Path) -> None:
    async with cluster(tmp_path / "data", {"a": 1, "b": 1}) as (processes, client):
        expected = await undisturbed(client, tmp_path / "whole")
        fault: dict[str, Any] = {"misdeed": "raise", "culprit": 1, "at": 5}
        once = await client.create(gang_file(tmp_path / "once", **fault, once=str(tmp_path / "marker")))
        (job,) = await completed(client, once)
        story = await hopyard(processes, "events", once.id, "1")
        assert re.search(r"rank 1: train at position 4: .*ValueError: a bad shard", story), story
        assert (job.attempt, job.failures) == (2, 1)
        assert await curve(client, once, job.id) == expected
        # With the fault in each attempt the job fails with that reason, and its slots are free for others.
        always = await client.create(gang_file(tmp_path / "always", **fault))
        ended = await client.wait(always.id, timeout=PATIENCE)
        assert ended.state is ExperimentState.FAILED
        (job,) = await client.jobs(always.id)
        assert job.reason.startswith("failed 2 times, 1 allowed:")
        assert "ValueError: a bad shard" in job.reason
        assert await undisturbed(client, tmp_path / "after") == expected


@pytest.mark.nightly
async def test_experiments_that_compete_for_slots_which_they_need_at_once_all_end(tmp_path: Path) -> None:
    async with cluster(tmp_path / "data", {"a": 2, "b": 2}) as (_, client):
        pairs = [
            await client.create(gang_file(tmp_path / name, jobs=2, length=6, seconds=0.05)) for name in ("one", "two")
        ]
        # A run on three slots does not fit beside a run on two, so it waits and takes no slots from the runs on two.
        three = await client.create(gang_file(tmp_path / "three", size=3, length=6))
        for experiment, jobs in ((pairs[0], 2), (pairs[1], 2), (three, 1)):
            found = await completed(client, experiment)
            assert len(found) == jobs
            for job in found:
                assert len(await curve(client, experiment, job.id)) == 6
                assert (job.failures, job.attempt - job.suspends) == (0, 1)
