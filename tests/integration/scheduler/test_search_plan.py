"""Tests of the search plan: AppStat stores what experiments under `stage_tree` have trained."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import Experiment, ExperimentState, JobState
from hopyard.v1 import appstat_pb2 as pb
from hopyard.v1 import appstat_pb2_grpc
from hopyard_tools.commands.replay import replay
from tests.access import channel_as
from tests.integration.scheduler.conftest import TRAINER
from tests.timing import HANG_SECONDS

FILE = """
name: shared
trainer: train.py:Counter
metric: {{name: accuracy, mode: max}}
space: {{x: {{sequence: [{values}]}}}}
generator: grid
policy: {policy}
stop: {{max_iterations: 6}}
"""
STEP = "{{multi_step: {{milestones: [{at}], values: [1, {value}]}}}}"


def shared(folder: Path, steps: Sequence[tuple[int, int]], policy: str = "stage_tree") -> Path:
    """Write an experiment file whose trials have x = 1, and another value from a given position on."""
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(TRAINER)
    file = folder / f"{policy}-{len(steps)}-{steps[0][1]}.yaml"
    values = ", ".join(STEP.format(at=at, value=value) for at, value in steps)
    file.write_text(FILE.format(values=values, policy=policy))
    return file


async def run(client: AsyncClient, file: Path) -> Experiment:
    """Run an experiment up to its end; return it with the note of its creation."""
    created = await client.create(file)
    ended = await client.wait(created.id, timeout=HANG_SECONDS)
    assert ended.state is ExperimentState.COMPLETED, ended.reason
    return replace(ended, note=created.note)


@pytest.fixture
async def appstat(client: AsyncClient) -> AsyncIterator[appstat_pb2_grpc.AppStatServiceAsyncStub]:
    async with channel_as("user", (await client.cluster()).appstat_address) as opened:
        yield appstat_pb2_grpc.AppStatServiceStub(opened)


@pytest.fixture
async def plan(client: AsyncClient) -> AsyncIterator[appstat_pb2_grpc.SearchPlanServiceAsyncStub]:
    async with channel_as("user", (await client.cluster()).appstat_address) as opened:
        yield appstat_pb2_grpc.SearchPlanServiceStub(opened)


async def root_of(client: AsyncClient, experiment: str, appstat: appstat_pb2_grpc.AppStatServiceAsyncStub) -> str:
    """Return the root of an experiment's search plan, as its journal records it."""
    from hopyard_engine.core.events import StreamCreated
    from hopyard_engine.journal.codec import event_of
    from hopyard_scheduler.runtime.journal import stored

    async for response in appstat.ReadJournal(pb.ReadJournalRequest(stream=experiment, from_position=1)):
        event = event_of(stored(response.records[0]))
        assert isinstance(event, StreamCreated)
        return event.settings.plan
    raise AssertionError(f"{experiment} has no journal")


async def test_what_trials_trained_stands_in_the_plan_once(
    client: AsyncClient,
    appstat: appstat_pb2_grpc.AppStatServiceAsyncStub,
    plan: appstat_pb2_grpc.SearchPlanServiceAsyncStub,
    tmp_path: Path,
) -> None:
    experiment = await run(client, shared(tmp_path / "e", [(3, 2), (3, 3), (4, 4)]))
    root = await root_of(client, experiment.id, appstat)
    nodes = list((await plan.ListPlanNodes(pb.ListPlanNodesRequest(root=root))).nodes)
    told = [(node.start, node.values_json, node.references, node.wanted, node.reached) for node in nodes]
    assert told[0] == (0, '{"x": 1}', 3, 4, 4)
    assert sorted(told[1:]) == [
        (3, '{"x": 2}', 1, 6, 6),
        (3, '{"x": 3}', 1, 6, 6),
        (4, '{"x": 4}', 1, 6, 6),
    ]
    assert {node.parent for node in nodes[1:]} == {nodes[0].key}
    first = await plan.GetPlanNode(pb.GetPlanNodeRequest(key=nodes[0].key))
    assert [one.report.position for one in first.results] == [1, 2, 3, 4]
    assert {(one.experiment, one.end) for one in first.references} == {(experiment.id, 3), (experiment.id, 4)}
    last = await plan.GetPlanNode(pb.GetPlanNodeRequest(key=nodes[-1].key))
    assert [one.position for one in last.snapshots] == [6]
    assert (await appstat.HasBlobs(pb.HasBlobsRequest(sha256=[last.snapshots[0].sha256]))).sha256


async def test_a_policy_that_shares_nothing_has_no_plan(
    client: AsyncClient, appstat: appstat_pb2_grpc.AppStatServiceAsyncStub, tmp_path: Path
) -> None:
    experiment = await run(client, shared(tmp_path / "e", [(3, 2)], policy="default"))
    assert await root_of(client, experiment.id, appstat) == ""


async def test_a_second_experiment_trains_only_what_is_new(
    client: AsyncClient, appstat: appstat_pb2_grpc.AppStatServiceAsyncStub, tmp_path: Path
) -> None:
    """Show that known configurations are answered without a run, with complete curves and best values."""
    first = await run(client, shared(tmp_path / "e", [(3, 2), (3, 3)]))
    second = await run(client, shared(tmp_path / "e", [(3, 3), (3, 2), (3, 4)]))
    jobs = await client.jobs(second.id)
    assert [(job.attempt, job.position, job.state) for job in jobs] == [
        (0, 6, JobState.COMPLETED),
        (0, 6, JobState.COMPLETED),
        (1, 6, JobState.COMPLETED),
    ]
    assert [job.best_value for job in jobs] == [18, 12, 24]
    assert (second.best_job, second.best_value) == ("3", 24)
    for job, twin in (("1", "2"), ("2", "1")):
        mine, theirs = await client.curve(second.id, job), await client.curve(first.id, twin)
        assert [(p.position, p.value) for p in mine] == [(p.position, p.value) for p in theirs]
    assert [point.position for point in await client.curve(second.id, "3")] == [1, 2, 3, 4, 5, 6]
    third = await run(client, shared(tmp_path / "e", [(3, 2), (3, 3), (3, 4), (3, 4)]))
    assert {job.attempt for job in await client.jobs(third.id)} == {0}
    assert third.best_value == 24


async def test_other_code_or_another_seed_never_matches(
    client: AsyncClient, appstat: appstat_pb2_grpc.AppStatServiceAsyncStub, tmp_path: Path
) -> None:
    steps = [(3, 2), (3, 3)]
    first = await run(client, shared(tmp_path / "e", steps))
    seeded = shared(tmp_path / "e", steps)
    seeded.write_text(seeded.read_text() + "seed: 7\n")
    other = shared(tmp_path / "other", steps)
    (tmp_path / "other" / "train.py").write_text(TRAINER + "# changed\n")
    for file, why in ((seeded, "seed is not the same"), (other, "its code differs in train.py (.hopyardignore leaves")):
        experiment = await run(client, file)
        assert min(job.attempt for job in await client.jobs(experiment.id)) == 1
        last, first = first, experiment
        assert f"nothing that {last.id} trains or has trained is shared: " in experiment.note
        assert why in experiment.note
    assert not (await run(client, other)).note  # Like the experiment before.


async def test_who_joins_a_group_with_a_file_more_beside_its_code_is_told(client: AsyncClient, tmp_path: Path) -> None:
    file = shared(tmp_path / "e", [(3, 2), (3, 3)])
    text = file.read_text().replace("space: {", "space: {pace: 5.0, ")
    file.write_text(text + "share: together\nresources: {slots: 1}\n")
    first = await client.create(file)
    await client.pause(first.id)  # A group that exists for as long as this takes.
    second = await client.create(file)
    assert not second.note
    (tmp_path / "e" / "mine.txt").write_text("what the first one printed")
    third = await client.create(file)
    assert f"nothing that {second.id} trains or has trained is shared: its code differs in mine.txt (" in third.note
    assert not (await client.create(file)).note  # It shares with the third.


async def test_a_replay_needs_nothing_but_the_journal(
    client: AsyncClient, address: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    await run(client, shared(tmp_path / "e", [(3, 2), (3, 3)]))
    second = await run(client, shared(tmp_path / "e", [(3, 3), (3, 2), (3, 4)]))
    assert await replay(second.id, None, address, None, False)
