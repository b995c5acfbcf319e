"""Tests of experiments that share slots by weight: runs above the share are suspended without loss."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import Experiment, ExperimentState, Job, JobState
from hopyard.spec import ExperimentSpec
from hopyard_engine.core.cluster import turns
from hopyard_engine.core.types import Settings
from hopyard_engine.settings import settings_of
from hopyard_nodeagent.agent import NodeAgent
from hopyard_nodeagent.settings import AgentSettings, SlotSettings
from hopyard_scheduler.experiments import commands
from tests.integration.scheduler.conftest import experiment, let_go
from tests.integration.scheduler.test_recovery import Pieces, pieces
from tests.timing import HANG_SECONDS, scaled

__all__ = ["pieces"]

TRAINER = '''
import json, time
from pathlib import Path
from hopyard.trainer import Trainer

GATE = Path({gate!r})


class Counter(Trainer):
    """Counts, slowly until its gate is opened, and reports from which position its process went on."""

    def setup(self, hp, changed):
        self.x = hp["x"]
        self.pace = hp["pace"]

    def build(self, hp):
        self.count = self.since = 0

    def train(self):
        time.sleep(self.pace)
        end = time.monotonic() + {slow}
        while time.monotonic() < end and not GATE.exists():
            time.sleep(0.02)
        self.count += 1
        return {{"accuracy": self.x, "count": float(self.count), "since": float(self.since)}}

    def save(self, folder):
        (folder / "state.json").write_text(json.dumps(self.count))

    def load(self, folder):
        self.count = self.since = json.loads((folder / "state.json").read_text())
'''


@pytest.fixture
async def client(pieces: Pieces, tmp_path: Path) -> AsyncIterator[AsyncClient]:
    """A client of a cluster of two nodes with two slots each."""
    scheduler = await pieces.scheduler()
    agents = []
    for node in ("a", "b"):
        slots = tuple(SlotSettings(id=f"{node}/{slot}", cpus=1) for slot in range(2))
        agent = NodeAgent(AgentSettings(node=node, scheduler=scheduler.address, data=tmp_path / node, slots=slots))
        await agent.start()
        agents.append(agent)
    try:
        async with AsyncClient(server=scheduler.address) as found:
            yield found
    finally:
        for agent in agents:
            await agent.stop()


@pytest.fixture
def grace(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives policies as many seconds as the parameter says to shrink to a smaller share."""

    def with_grace(spec: ExperimentSpec) -> Settings:
        return replace(settings_of(spec), grace=request.param)

    monkeypatch.setattr(commands, "settings_of", with_grace)


def file(folder: Path, weight: float, policy: str = "{name: default}", **terms: float) -> Path:
    """Write an experiment file; its jobs take a second for each iteration until `let_go`."""
    more = f"weight: {weight}\npolicy: {policy}"
    made = experiment(folder, more=more, **terms)  # type: ignore[arg-type]
    (folder / "train.py").write_text(TRAINER.format(gate=str(folder / "gate"), slow=scaled(1.0)))
    return made


async def until(client: AsyncClient, found: Experiment, holds: Callable[[Experiment, list[Job]], bool]) -> list[Job]:
    """Wait until an experiment and its jobs satisfy `holds`; return the jobs."""
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            present, jobs = await client.get(found.id), list(await client.jobs(found.id))
            if holds(present, jobs):
                return jobs
            assert not present.state.ended, f"{present.state} before that: {present.reason}"
            await asyncio.sleep(0.02)  # Other processes train.


def running(count: int) -> Callable[[Experiment, list[Job]], bool]:
    """Return a condition: the experiment has a share of `count` slots and trains on all of them."""

    def holds(present: Experiment, jobs: list[Job]) -> bool:
        training = sum(job.state is JobState.RUNNING for job in jobs)
        return (present.slots, present.share, training) == (count, count, count)

    return holds


def waiting(count: int, state: JobState, reason: str) -> Callable[[Experiment, list[Job]], bool]:
    """Return a condition: like `running(count)`, and the reasons of all jobs in `state` begin with `reason`.

    At least one job must be in `state`. After a change of the share, jobs may first wait for their policy.
    """

    def holds(present: Experiment, jobs: list[Job]) -> bool:
        reasons = [job.reason for job in jobs if job.state is state]
        return running(count)(present, jobs) and bool(reasons) and all(each.startswith(reason) for each in reasons)

    return holds


async def stretches(client: AsyncClient, found: Experiment) -> Mapping[str, list[tuple[int, int]]]:
    """Return the first and the last position of each attempt of each job, by job.

    Check that each position was reported once, and that no job lost or repeated an iteration: the trainer reports its count of
    iterations and the position from which it was loaded.
    """
    result = {}
    for job in await client.jobs(found.id):
        assert (job.state, job.failures) == (JobState.COMPLETED, 0), job
        reports = await client.statistics(found.id, job.id)
        assert [s.report.position for s in reports] == list(range(1, job.position + 1))
        assert [s.report.metrics["count"] for s in reports] == [float(n) for n in range(1, job.position + 1)]
        attempts: dict[int, list[int]] = {}
        for s in reports:
            attempts.setdefault(s.attempt, []).append(s.report.position)
            assert s.report.metrics["since"] == attempts[s.attempt][0] - 1
        result[job.id] = [(positions[0], positions[-1]) for positions in attempts.values()]
    return result


@pytest.mark.timeout(240)
@pytest.mark.usefixtures("grace")
@pytest.mark.parametrize(
    ("policy", "grace"),
    [
        pytest.param("{name: default}", scaled(0.5), id="at the deadline"),
        pytest.param("{name: 'tests.integration.scheduler.policies:Yielding'}", 600.0, id="by the policy"),
    ],
    indirect=["grace"],
)
async def test_weights_1_and_3_share_four_slots_1_to_3_and_back(
    client: AsyncClient, tmp_path: Path, policy: str
) -> None:
    light_file = file(tmp_path / "light", 1, policy, jobs=5, length=60, pace=0.01)
    light = await client.create(light_file)
    await until(client, light, running(4))
    heavy_file = file(tmp_path / "heavy", 3, policy, jobs=3, length=50, pace=0.01)
    heavy = await client.create(heavy_file)
    busy = f"waits for a slot: 1 of 1 in its share are busy: weight 1 against {heavy.id} (weight 3: 3)"
    jobs = await until(client, light, waiting(1, JobState.SUSPENDED, busy))
    assert len([job for job in jobs if job.state is JobState.SUSPENDED]) == 3
    await until(client, heavy, running(3))
    assert running(1)(await client.get(light.id), list(await client.jobs(light.id)))
    let_go(heavy_file)
    assert (await client.wait(heavy.id, timeout=HANG_SECONDS)).state is ExperimentState.COMPLETED
    assert [len(runs) for runs in (await stretches(client, heavy)).values()] == [1, 1, 1]
    await until(client, light, running(4))
    let_go(light_file)
    ended = await client.wait(light.id, timeout=HANG_SECONDS)
    assert (ended.state, ended.reason) == (ExperimentState.COMPLETED, "all jobs ended")
    runs = await stretches(client, light)
    assert sorted(map(len, runs.values())) == [1, 1, 2, 2, 2]
    assert sorted(runs) == ["1", "2", "3", "4", "5"]


@pytest.mark.usefixtures("grace")
@pytest.mark.parametrize("grace", [pytest.param(scaled(0.5), id="short grace")], indirect=True)
async def test_a_run_that_may_not_be_preempted_trains_to_its_until_whatever_the_deadline(
    client: AsyncClient, tmp_path: Path
) -> None:
    units = "{name: 'tests.integration.scheduler.policies:Units', unit: 15}"
    light_file = file(tmp_path / "light", 1, units, jobs=4, length=45, pace=0.05)
    light = await client.create(light_file)
    await until(client, light, running(4))
    heavy_file = file(tmp_path / "heavy", 3, jobs=3, length=50, pace=0.01)
    heavy = await client.create(heavy_file)
    let_go(light_file)
    await until(client, light, running(1))
    let_go(heavy_file)
    for found in (heavy, light):
        assert (await client.wait(found.id, timeout=HANG_SECONDS)).state is ExperimentState.COMPLETED
    for runs in (await stretches(client, light)).values():
        assert runs == [(1, 15), (16, 30), (31, 45)]


@pytest.mark.usefixtures("grace")
@pytest.mark.parametrize("grace", [pytest.param(scaled(0.2), id="short grace")], indirect=True)
async def test_five_experiments_take_turns_on_four_slots(
    client: AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "TURN_SECONDS", scaled(1.0))
    files = [file(tmp_path / str(number), 1, jobs=1, length=60, pace=0.01) for number in range(5)]
    experiments = [await client.create(each) for each in files]
    await until(client, experiments[4], lambda _, jobs: any(job.position > 0 for job in jobs))
    for each in files:
        let_go(each)
    runs = []
    for found in experiments:
        assert (await client.wait(found.id, timeout=HANG_SECONDS)).state is ExperimentState.COMPLETED
        runs += [len(each) for each in (await stretches(client, found)).values()]
    assert len(runs) == 5
    assert max(runs) > 1


async def test_who_can_use_one_slot_leaves_the_others_whatever_its_weight(client: AsyncClient, tmp_path: Path) -> None:
    single = "{name: 'tests.integration.scheduler.policies:Single'}"
    files = file(tmp_path / "heavy", 100, single, jobs=4, length=30), file(tmp_path / "light", 1, jobs=4, length=40)
    heavy, light = [await client.create(each) for each in files]
    await until(client, light, running(3))
    busy = "waits for a slot: 1 of 1 in its share are busy: the policy can use no more than 1 now"
    await until(client, heavy, waiting(1, JobState.PENDING, busy))
    for each in files:
        let_go(each)
    for found in (heavy, light):
        assert (await client.wait(found.id, timeout=HANG_SECONDS)).state is ExperimentState.COMPLETED
        await stretches(client, found)
