"""Tests that the options of a run have the same names in the engine, on the wire and in the training process."""

from __future__ import annotations

from dataclasses import fields

import pytest

from hopyard._runtime.runner import converters
from hopyard._runtime.runner.control import RunPlan
from hopyard.policy.vocabulary import RunKey, RunMode, StreamId
from hopyard.spec import load_spec
from hopyard.v1 import application_pb2, resource_manager_pb2
from hopyard_engine.core.effects import RunOptions, Start
from hopyard_engine.core.types import SnapshotInfo
from hopyard_scheduler.converters import command_to_proto
from hopyard_scheduler.experiments.program import ExperimentProgram

pytestmark = pytest.mark.quick

FILE = """
name: x
trainer: train.py:Curve
metric: {name: score, mode: max}
space: {lr: {uniform: [0, 1]}}
stop: {jobs: 1, max_iterations: 9}
"""

OPTIONS = {
    "until": 7,
    "allowed": 5,
    "snapshot_at": (3, 6),
    "snapshot_every": 2,
    "completes": True,
    "ships_by_order": True,
}
AGENT_ONLY = {"ships_by_order"}


def start(mode: RunMode = RunMode.TRAIN) -> resource_manager_pb2.StartRun:
    """Return the message by which the scheduler starts a run with all options."""
    body = Start(
        slot="n/0",
        hyperparameters={"lr": 0.5},
        mode=mode,
        snapshot=SnapshotInfo(1, "s1"),
        snapshot_nodes=(),
        input="",
        rank_nodes=("n",),
        **OPTIONS,  # type: ignore[arg-type]
    )
    program = ExperimentProgram(load_spec(FILE), "", "")
    return command_to_proto(RunKey(StreamId("x"), "1", 1), 1, 1, body, program, {}).start


def names(cls: type) -> set[str]:
    return {field.name for field in fields(cls)}


def test_each_option_has_a_field_on_the_wire_and_in_the_plan_of_the_runner() -> None:
    wire = set(resource_manager_pb2.StartRun.DESCRIPTOR.fields_by_name)
    assert names(RunOptions) == set(OPTIONS)
    assert names(RunOptions) <= wire
    assert names(RunPlan) - {"position", "evaluate"} == names(RunOptions) - AGENT_ONLY


def test_each_option_reaches_the_runner_with_its_value() -> None:
    sent = start()
    for name, value in OPTIONS.items():
        found = getattr(sent, name)
        assert (tuple(found) if isinstance(value, tuple) else found) == value
    received = resource_manager_pb2.StartRun.FromString(sent.SerializeToString())
    plan = converters.plan(application_pb2.ApplicationStart(start=received))
    assert plan == RunPlan(
        position=1, until=7, allowed=5, snapshot_at=frozenset({3, 6}), snapshot_every=2, completes=True, evaluate=False
    )
    assert converters.plan(application_pb2.ApplicationStart(start=start(RunMode.EVALUATE))).evaluate


def test_a_change_replaces_the_option_with_its_name() -> None:
    plan = RunPlan.of(start(), position=4, evaluate=True, until=0)
    assert (plan.position, plan.evaluate, plan.until, plan.allowed) == (4, True, 0, 5)
