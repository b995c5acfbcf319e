"""Tests of commands of users to a running experiment and to one of its jobs, through the whole cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import Change, Experiment, ExperimentState, Job, JobReport, JobState
from hopyard.errors import Conflict, InvalidInput, NotFound
from hopyard.v1 import experiment_pb2
from tests.integration.scheduler.conftest import Stubs, experiment, let_go
from tests.integration.scheduler.test_waiting_reasons import seen
from tests.timing import HANG_SECONDS

ONLY_PAUSED = "nothing is left to train but job 1, which is paused by a person: resume or stop it"


def is_job(name: str, *states: JobState) -> Callable[[Change], bool]:
    return lambda change: isinstance(change, Job) and change.id == name and change.state in states


def reports(name: str) -> Callable[[Change], bool]:
    return lambda change: isinstance(change, JobReport) and change.job == name


@pytest.mark.parametrize("policy", ["default", "{name: default, barrier: true, epoch: 5}"])
async def test_a_paused_job_stays_where_it_is_and_its_experiment_goes_on(
    client: AsyncClient, tmp_path: Path, policy: str
) -> None:
    file = experiment(tmp_path / "e", jobs=2, length=30, pace=0.02, more=f"policy: {policy}", free=3)
    found = await client.create(file)
    await seen(client.watch(found), reports("1"))
    held = await client.pause_job(found, "1")
    assert held.state in (JobState.SUSPENDING, JobState.HELD)
    await seen(client.watch(found), is_job("1", JobState.HELD))
    let_go(file)
    await seen(client.watch(found), is_job("2", JobState.COMPLETED))
    await seen(client.watch(found), lambda change: isinstance(change, Experiment) and change.reason == ONLY_PAUSED)
    present, job = await client.get(found), await client.job(found, "1")
    assert (present.state, job.state, job.reason) == (ExperimentState.RUNNING, JobState.HELD, "paused by a person")
    assert 0 < job.position < 30
    assert (await client.resume_job(found, "1")).state in (JobState.SUSPENDED, JobState.STARTING)
    ended = await client.wait(found, timeout=HANG_SECONDS)
    again = await client.job(found, "1")
    assert (ended.state, again.state, again.position) == (ExperimentState.COMPLETED, JobState.COMPLETED, 30)
    assert again.attempt > job.attempt
    with pytest.raises(
        Conflict, match="is COMPLETED, and none of its jobs trains; run `hopyard extend` to continue it"
    ):
        await client.pause_job(found, "1")
    with pytest.raises(NotFound, match="has no job '9'; hopyard jobs"):
        await client.stop_job(found, "9")


async def trains(client: AsyncClient, found: Experiment, wanted: Collection[str]) -> None:
    """Wait until exactly the jobs in `wanted` have a slot."""

    async def enough(_: Change) -> bool:
        return {job.id for job in await client.jobs(found) if job.slots} == set(wanted)

    async for change in client.watch(found):
        if await enough(change):
            return


async def test_terms_are_set_while_it_runs_and_taken_away_again(
    client: AsyncClient, stubs: Stubs, tmp_path: Path
) -> None:
    found = await client.create(experiment(tmp_path / "e", jobs=2, length=5000, pace=0.05, more="weight: 2"))
    await trains(client, found, ["1", "2"])
    limited = await client.update(found, concurrency=1, weight=3.0)
    assert (limited.spec["resources"]["concurrency"], limited.spec["weight"]) == (1, 3.0)
    await client.stop_job(found, "2")
    await seen(client.watch(found), is_job("2", JobState.TERMINATED))
    await trains(client, found, ["1"])
    assert (await client.get(found)).share == 1
    aimed = await client.update(found, target=1e9, slots=1, clear=["concurrency"])
    resources = aimed.spec["resources"]
    assert (aimed.metric.target, resources["slots"], resources["concurrency"]) == (1e9, 1, None)
    request = experiment_pb2.UpdateExperimentRequest(experiment=found.id, clear=["target"], request_id="once")
    free = (await stubs.experiments.UpdateExperiment(request)).experiment
    assert not free.metric.HasField("target")
    await client.update(found, target=1e9)
    await stubs.experiments.UpdateExperiment(request)  # This request was already carried out, so it is not repeated.
    assert (await client.get(found)).metric.target == 1e9
    await seen(client.watch(found), reports("1"))
    ended = await client.update(found, target=1e-12)
    assert ended.state in (ExperimentState.ENDING, ExperimentState.COMPLETED)
    ended = await client.wait(found, timeout=HANG_SECONDS)
    assert ended.state is ExperimentState.COMPLETED
    assert (await client.update(found, clear=["target"])).state is ExperimentState.COMPLETED


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "change at least one of metric, target, weight, slots, concurrency"),
        ({"weight": 0.0}, "weight must be above 0, found 0.0"),
        ({"concurrency": 0}, "concurrency must be at least 1, found 0"),
        ({"slots": -1}, "slots must be at least 1, found -1"),
        ({"slots": 2**40}, "slots and concurrency are at most 2147483647"),
        ({"target": float("nan")}, "target must be a finite number, found nan"),
        ({"clear": ["weight"]}, "clear: found 'weight', allowed are target, slots, concurrency, and none that is set"),
        ({"target": 1.0, "clear": ["target"]}, "and none that is set"),
        ({"target": 0.1}, "target must be above the kill_threshold 0.5 (mode max), found 0.1"),
    ],
)
async def test_terms_that_cannot_be_are_refused(
    client: AsyncClient, tmp_path: Path, change: dict[str, float], expected: str
) -> None:
    file = experiment(tmp_path / "e", length=2000, pace=0.05)
    file.write_text(file.read_text().replace("mode: max}", "mode: max, kill_threshold: 0.5}"))
    found = await client.create(file)
    with pytest.raises(InvalidInput) as caught:
        await client.update(found, **change)  # type: ignore[arg-type]
    assert expected in str(caught.value)
    await client.stop(found)


async def test_an_extension_beyond_the_largest_number_of_jobs_is_refused(client: AsyncClient, tmp_path: Path) -> None:
    found = await client.create(experiment(tmp_path / "e", jobs=2, length=2000, pace=0.05))
    with pytest.raises(InvalidInput, match=r"jobs: found 2147483645, allowed is 0 to 2147483644: stop\.jobs is 2"):
        await client.extend(found, jobs=2**31 - 3)
    await client.extend(found, jobs=2**31 - 4)
    await client.stop(found)
    ended = await client.wait(found, timeout=HANG_SECONDS)
    assert ended.spec["stop"]["jobs"] == 2**31 - 2
