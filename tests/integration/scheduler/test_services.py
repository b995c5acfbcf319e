"""Tests of what users and programs can do through the scheduler's services."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import ExperimentState, JobState
from hopyard.errors import Conflict, Exhausted, InvalidInput, NotFound
from hopyard.v1 import experiment_pb2 as e
from hopyard.v1 import job_manager_pb2 as j
from hopyard.v1 import resource_manager_pb2 as r
from tests.integration.scheduler.conftest import Stubs, experiment
from tests.timing import HANG_SECONDS


async def test_an_experiment_from_end_to_end(client: AsyncClient, tmp_path: Path) -> None:
    created = await client.create(experiment(tmp_path / "e"))
    ended = await client.wait(created.id, timeout=HANG_SECONDS)
    assert (ended.state, ended.reason) == (ExperimentState.COMPLETED, "all jobs ended")
    jobs = await client.jobs(created.id)
    assert [(job.state, job.position) for job in jobs] == [(JobState.COMPLETED, 4)] * 3
    best = max(jobs, key=lambda job: job.hyperparameters["x"])
    assert ended.best_job == best.id
    assert ended.best_value == best.hyperparameters["x"] * 4
    statistics = await client.statistics(created.id, best.id)
    assert [s.report.position for s in statistics] == [1, 2, 3, 4]


async def test_creating_twice_with_one_request_id_makes_one(stubs: Stubs, tmp_path: Path) -> None:
    text = experiment(tmp_path / "e").read_text()
    request = e.CreateExperimentRequest(spec=text, request_id="one")
    first = await stubs.experiments.CreateExperiment(request)
    second = await stubs.experiments.CreateExperiment(request)
    assert first.experiment.id == second.experiment.id
    found = await stubs.experiments.ListExperiments(e.ListExperimentsRequest())
    assert len(found.experiments) == 1
    await stubs.experiments.StopExperiment(e.StopExperimentRequest(experiment=first.experiment.id))


async def test_what_the_policy_says_of_the_terms_is_told_to_whoever_creates_the_experiment(
    client: AsyncClient, tmp_path: Path
) -> None:
    created = await client.create(experiment(tmp_path / "e", more="policy: {name: asha, eta: 2}"))
    assert created.note.startswith("policy asha: 3 configurations are too few for 3 rungs at eta 2")
    assert (await client.stop(created)).note == ""


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"spec": "jobs: 3"}, "another specification"),
        ({"spec": "name: other"}, "another specification"),
        ({"interpreter": "/usr/bin/python3"}, "another interpreter"),
    ],
)
async def test_one_request_id_is_for_one_experiment(
    stubs: Stubs, tmp_path: Path, change: dict[str, str], says: str
) -> None:
    text = experiment(tmp_path / "e", jobs=2, length=5000, pace=0.05).read_text()
    request = e.CreateExperimentRequest(spec=text, request_id="one")
    first = (await stubs.experiments.CreateExperiment(request)).experiment.id
    # After its end the scheduler no longer has the experiment in memory, but the request id still belongs to it.
    await stubs.experiments.StopExperiment(e.StopExperimentRequest(experiment=first))
    if found := change.get("spec"):
        field = found.partition(":")[0]
        change = {"spec": re.sub(rf"(^|[{{ ]){field}: \S+?(?=[,}}\n])", rf"\g<1>{found}", text, count=1)}
        assert change["spec"] != text
    other = e.CreateExperimentRequest(**{"spec": text, **change}, request_id="one")
    with pytest.raises(
        Conflict, match=rf"request_id: 'one' made experiment {first}, with {says}; a new experiment needs"
    ):
        await stubs.experiments.CreateExperiment(other)
    assert (await stubs.experiments.CreateExperiment(request)).experiment.id == first
    found_now = await stubs.experiments.ListExperiments(e.ListExperimentsRequest())
    assert [x.id for x in found_now.experiments] == [first]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("name: x", "trainer"),
        ("policy: {name: no-such}", "no plugin is called 'no-such'"),
        ("policy: {name: default, barier: true}", "barier"),
        ("policy: {name: pbt, frozen: [y]}", "policy pbt: frozen names 'y'"),
        ("generator: {name: random, sede: 1}", "sede"),
        ("snapshot: {provider: criu}", "criu"),
    ],
)
async def test_what_is_wrong_with_an_experiment_is_said_before_it_exists(
    stubs: Stubs, tmp_path: Path, spec: str, says: str
) -> None:
    text = spec if spec.startswith("name") else experiment(tmp_path / "e", more=spec).read_text()
    with pytest.raises(InvalidInput, match=says):
        await stubs.experiments.CreateExperiment(e.CreateExperimentRequest(spec=text, request_id="bad"))
    found = await stubs.experiments.ListExperiments(e.ListExperimentsRequest())
    assert not found.experiments


async def test_pause_resume_and_stop(client: AsyncClient, tmp_path: Path) -> None:
    created = await client.create(experiment(tmp_path / "e", length=5000, pace=0.05))
    await client.pause(created.id)
    paused = await client.wait(created.id, timeout=HANG_SECONDS, until=[ExperimentState.PAUSED])
    assert paused.slots <= 2
    assert not any(job.slots for job in await client.jobs(created.id))
    await client.resume(created.id)
    await client.stop(created.id)
    ended = await client.wait(created.id, timeout=HANG_SECONDS)
    assert ended.state is ExperimentState.STOPPED
    assert {job.state for job in await client.jobs(created.id)} == {JobState.TERMINATED}
    with pytest.raises(Conflict, match="hopyard extend"):
        await client.resume(created.id)


async def test_an_extended_experiment_goes_on(client: AsyncClient, stubs: Stubs, tmp_path: Path) -> None:
    created = await client.create(experiment(tmp_path / "e", jobs=1))
    await client.wait(created.id, timeout=HANG_SECONDS)
    request = e.ExtendExperimentRequest(experiment=created.id, jobs=1, max_iterations=6, request_id="more")
    await stubs.experiments.ExtendExperiment(request)
    await stubs.experiments.ExtendExperiment(request)
    extended = await client.wait(created.id, timeout=HANG_SECONDS)
    assert (extended.spec["stop"]["jobs"], extended.spec["stop"]["max_iterations"]) == (2, 6)
    jobs = await client.jobs(created.id)
    assert [(job.state, job.position) for job in jobs] == [(JobState.COMPLETED, 6)] * 2
    positions = [s.report.position for s in await client.statistics(created.id, "1")]
    assert positions == [1, 2, 3, 4, 5, 6]


EVERY_KIND = """space:
  x: {uniform: [0.0, 0.5], step: 0.1}
  lr: {loguniform: [1.0e-4, 1.0]}
  layers: {int: [1, 5], step: 2}
  width: {logint: [16, 1024]}
  optimizer: {choice: [sgd, {name: adam, betas: [0.9, 0.999]}]}
  nesterov: {choice: [true, false], when: {optimizer: sgd}}
  head: {space: {depth: {int: [1, 4]}, dropout: {uniform: [0.0, 0.5]}}}
  activation: relu
  betas: {constant: [0.9, 0.999]}
  decay: {sequence: {multi_step: {milestones: [2, 5], values: [1.0e-4, 1.0e-3, 1.0e-2]}}}
  noise: {sequence: [{constant: 0.1}, {exponential: {initial: {loguniform: [0.01, 1.0]}, gamma: 0.99}}], per: 2}
"""


@pytest.mark.parametrize("policy", ["default", "asha", "stage_tree"])
async def test_a_search_over_every_kind_of_parameter_is_extended(
    client: AsyncClient, stubs: Stubs, tmp_path: Path, policy: str
) -> None:
    file = experiment(tmp_path / "e", jobs=2, more=f"policy: {{name: {policy}}}")
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(EVERY_KIND if line.startswith("space:") else line for line in lines))
    created = await client.create(file)
    before = await client.wait(created.id, timeout=HANG_SECONDS)
    assert before.state is ExperimentState.COMPLETED
    told = {job.id: job.hyperparameters for job in await client.jobs(created.id)}
    request = e.ExtendExperimentRequest(experiment=created.id, jobs=2, max_iterations=6, request_id="more")
    await stubs.experiments.ExtendExperiment(request)
    extended = await client.wait(created.id, timeout=HANG_SECONDS)
    assert extended.state is ExperimentState.COMPLETED
    jobs = await client.jobs(created.id)
    assert len(jobs) == 4
    assert {job.id: job.hyperparameters for job in jobs if job.id in told} == told
    if policy != "asha":  # This policy promotes only the best job.
        assert {(job.state, job.position) for job in jobs} == {(JobState.COMPLETED, 6)}


async def test_acts_on_single_jobs(client: AsyncClient, stubs: Stubs, tmp_path: Path) -> None:
    created = await client.create(experiment(tmp_path / "e", jobs=4, length=5000, pace=0.05))
    name = created.id
    async for _ in client.watch(name):
        if len(await client.jobs(name, JobState.RUNNING)) == 2:
            break
    victim, other = await client.jobs(name, JobState.RUNNING)
    await stubs.jobs.TerminateJob(j.TerminateJobRequest(experiment=name, job=victim.id))
    async for _ in client.watch(name):
        if (await client.job(name, victim.id)).state is JobState.TERMINATED:
            break
    start = j.StartJobRequest(experiment=name, job=victim.id, slots=[victim.slots[0]])
    with pytest.raises(Conflict, match="TERMINATED"):
        await stubs.jobs.StartJob(start)
    with pytest.raises(NotFound, match="no job '99'"):
        await stubs.jobs.LabelJob(j.LabelJobRequest(experiment=name, job="99", priority=1))
    with pytest.raises(NotFound, match="no experiment 'nowhere'"):
        await stubs.jobs.SuspendJob(j.SuspendJobRequest(experiment="nowhere", job="1"))
    labelled = await stubs.jobs.LabelJob(j.LabelJobRequest(experiment=name, job=other.id, priority=2.5))
    assert labelled.job.priority == 2.5
    await client.stop(name)
    await client.wait(name, timeout=HANG_SECONDS)


async def test_slots_and_nodes(client: AsyncClient, stubs: Stubs, tmp_path: Path) -> None:
    nodes = await stubs.slots.ListNodes(r.ListNodesRequest())
    assert [node.id for node in nodes.nodes] == ["n"]
    slots = await stubs.slots.ListSlots(r.ListSlotsRequest(page_size=1))
    rest = await stubs.slots.ListSlots(r.ListSlotsRequest(page_token=slots.next_page_token))
    assert [m.id for m in [*slots.slots, *rest.slots]] == ["n/0", "n/1"]
    created = await client.create(experiment(tmp_path / "e", jobs=2, length=5000, pace=0.05))
    async for _ in client.watch(created.id):
        if len(await client.jobs(created.id, JobState.RUNNING)) == 2:
            break
    with pytest.raises(Exhausted, match="no idle slot"):
        await stubs.slots.ReserveIdleMachine(r.ReserveIdleMachineRequest(experiment=created.id, request_id="a"))
    with pytest.raises(NotFound, match="no slot 'x'"):
        await stubs.slots.ReleaseMachine(r.ReleaseMachineRequest(slot="x"))
    await client.stop(created.id)
    await client.wait(created.id, timeout=HANG_SECONDS)


async def test_terms_are_finite_numbers(client: AsyncClient, stubs: Stubs, tmp_path: Path) -> None:
    created = await client.create(experiment(tmp_path / "e"))
    for value in (math.nan, math.inf):
        with pytest.raises(InvalidInput, match="weight must be a finite number"):
            await stubs.experiments.UpdateExperiment(e.UpdateExperimentRequest(experiment=created.id, weight=value))
        with pytest.raises(InvalidInput, match="target must be a finite number"):
            await stubs.experiments.UpdateExperiment(e.UpdateExperimentRequest(experiment=created.id, target=value))
    await client.wait(created.id, timeout=HANG_SECONDS)
