"""Tests of the policy mop in a whole cluster: pilots, plans of a solver, and fewer slots than nodes with data."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from hopyard.client.types import Experiment, ExperimentState
from hopyard.policy import RunMode
from hopyard.policy.vocabulary import StartJob
from hopyard_engine.core.events import Answered, Event, PolicyAnswered, Reports, RunMessage
from hopyard_policies.mop import milp_plans
from hopyard_tools.commands.journal_source import opened
from tests.integration.scheduler.catalog_cluster import Cluster, partition
from tests.timing import HANG_SECONDS

pytestmark = pytest.mark.timeout(300)

PROGRAM = """
import time
import numpy as np
from hopyard import model_hopper


class Sum:
    value = 0.0

    def save(self, directory):
        (directory / "value").write_text(repr(self.value))

    def load(self, directory):
        self.value = float((directory / "value").read_text())


def input_fn(path):
    with np.load(path) as file:
        return file["x"]


def train_fn(x, model, optimizer, config):
    time.sleep(len(x) * config["pace"])
    model.value += float(x.sum())
    return {"value": model.value}


TRAINER = model_hopper.trainer(
    input_fn=input_fn,
    model_fn=lambda config: Sum(),
    train_fn=train_fn,
    evaluate_fn=lambda x, model, config: {"score": model.value},
)
"""

SPEC = """
name: hopping
trainer: train.py:TRAINER
metric: {{name: score, mode: max}}
space: {{x: {{uniform: [0.0, 1.0]}}, pace: {{choice: [{pace}]}}}}
policy: {policy}
data: numbers
resources: {resources}
stop: {{jobs: {jobs}, max_iterations: 8}}
unit: units
"""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Two nodes of one slot, each with two of the four training partitions; one of them has the evaluation partition."""
    made = Cluster(tmp_path)
    await made.start()
    try:
        await made.join("a", "b")
        for number in range(5):
            np.savez(tmp_path / f"{number}.npz", x=np.full(100, 10.0**number))
        parts = [partition(f"train/{n}", **{"ab"[n % 2]: tmp_path / f"{n}.npz"}) for n in range(4)]
        await made.client.register_data("numbers", [*parts, partition("eval/0", b=tmp_path / "4.npz")])
        yield made
    finally:
        await made.stop()


def written(folder: Path, spec: str) -> Path:
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    (folder / "experiment.yaml").write_text(spec)
    return folder / "experiment.yaml"


async def trained(cluster: Cluster, folder: Path, policy: str, *, pace: float, jobs: int, resources: str) -> Experiment:
    created = await cluster.client.create(
        written(folder, SPEC.format(policy=policy, pace=pace, jobs=jobs, resources=resources))
    )
    ended = await cluster.client.wait(created.id, timeout=HANG_SECONDS)
    assert (ended.state, ended.reason) == (ExperimentState.COMPLETED, "all jobs ended")
    for job in await cluster.client.jobs(created.id):
        # Each epoch visited each partition once.
        found = [(s.report.position, s.report.metrics) for s in await cluster.client.statistics(created.id, job.id)]
        values = {position: metrics["value"] for position, metrics in found if "value" in metrics}
        assert (values[4], values[8]) == (111100.0, 222200.0)
    return ended


async def journal(cluster: Cluster, name: str) -> list[Event]:
    async with opened(cluster.address, None, name, "a test") as source:
        return [event async for _, event in source.read()]


async def test_times_are_found_out_by_pilots_and_a_plan_is_made_with_them(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(milp_plans, "LEAST", 60.0)  # A plan is found even on a busy host.
    ended = await trained(
        cluster, tmp_path / "e", "{name: mop, scheduler: milp, pilot: true}", pace=0.003, jobs=3, resources="{}"
    )
    events = await journal(cluster, ended.id)
    starts = [
        command
        for event in events
        if isinstance(event, PolicyAnswered)
        for command in event.answer.commands
        if isinstance(command, StartJob)
    ]
    modes = [command.mode for command in starts]
    assert modes[:4] == [RunMode.PROFILE] * 4  # Each job once, and one of them on both slots.
    assert modes.count(RunMode.PROFILE) == 4
    profiled = {
        (command.job, 1 + sum(other.job == command.job for other in starts[:i])) for i, command in enumerate(starts[:4])
    }
    told = [
        event.body.reports[0].metrics["seconds"]
        for event in events
        if isinstance(event, RunMessage) and isinstance(event.body, Reports) and (event.job, event.attempt) in profiled
    ]
    assert len(told) == 4
    assert all(seconds >= 0.3 for seconds in told)  # 100 examples at 3 ms each, spent asleep.
    answers = [event for event in events if isinstance(event, Answered) and event.ticket.startswith("policy/")]
    assert answers
    assert [answer.error for answer in answers] == [""] * len(answers)
    assert all(answer.result["said"].startswith("a plan of ") for answer in answers)


async def test_a_share_of_one_slot_goes_from_node_to_node(cluster: Cluster, tmp_path: Path) -> None:
    ended = await trained(cluster, tmp_path / "e", "mop", pace=0.0, jobs=2, resources="{slots: 1}")
    said = [event.nodes for event in await journal(cluster, ended.id) if isinstance(event, PolicyAnswered)]
    assert {("a",), ("b",)} <= set(said)
