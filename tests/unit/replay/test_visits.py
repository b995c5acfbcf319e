"""Tests of the visits from a journal: which job trained on which partition, and when."""

from __future__ import annotations

import pytest

from hopyard.plots.model import PartitionReplicas, PlottedVisit
from hopyard.policy.vocabulary import RunEndReason, RunMode, StartJob
from hopyard_engine.core.events import Started
from hopyard_tools.commands.partition_visits import PartitionVisits
from hopyard_tools.commands.timeline import Timeline
from tests.unit.core.rig import Rig, snapshot
from tests.unit.core.test_data import DataRig

pytestmark = pytest.mark.quick


def told(rig: Rig) -> PartitionVisits:
    timeline = Timeline()
    for event in rig.journal:
        timeline.take(event)
    return timeline.visits


def test_a_visit_is_told_with_what_its_model_s_way_there_took() -> None:
    rig = DataRig(ship_every=0)
    rig.create()
    rig.now = 110.0
    rig.command(StartJob("1", ("n1/0",), until=1, inputs={"n1/0": "train/0"}, preemptible=False))
    first = rig.now
    rig.now = 112.0
    rig.say(rig.key(), Started(0))
    rig.report(1, at_until=True)
    rig.now = 120.0
    rig.ended(RunEndReason.UNTIL, 1, snapshot(1))
    rig.command(StartJob("1", ("n2/0",), inputs={"n2/0": "eval/0"}, mode=RunMode.EVALUATE, parts=1))
    second = rig.now
    rig.now = 121.0
    rig.say(rig.key(), Started(1, 10))
    rig.now = 125.0
    found = told(rig)
    assert found.told == {
        "x": [
            PlottedVisit("n1/0", "n1", "1", "train/0", False, first, 112.0, 120.0, "UNTIL"),
            PlottedVisit("n2/0", "n2", "1", "eval/0", True, second, 121.0, None, None, 10),
        ]
    }
    assert found.moved == [(121.0, 10, 0, 0)]
    rig.expire("n2")
    (_, lost) = told(rig).told["x"]
    assert (lost.end, lost.reason, lost.got) == (125.0, "LOST", 10)


def test_each_rank_of_a_gang_visits_a_partition_and_a_profile_is_no_visit() -> None:
    rig = DataRig()
    rig.create()
    slots, inputs = ("n1/0", "n2/0"), {"n1/0": "train/0", "n2/0": "train/1"}
    rig.command(StartJob("1", slots, inputs=inputs, mode=RunMode.PROFILE))
    assert told(rig).told == {}
    for rank in range(2):
        rig.ended(RunEndReason.UNTIL, 0, rank=rank)
    rig.command(StartJob("1", slots, until=2, inputs=inputs))
    began, rig.now = rig.now, 120.0
    rig.say(rig.key(rank=1), Started(0, 10))
    assert told(rig).told == {
        "x": [
            PlottedVisit("n1/0", "n1", "1", "train/0", False, began),
            PlottedVisit("n2/0", "n2", "1", "train/1", False, began, 120.0, None, None, 10),
        ]
    }


def test_what_is_held_are_all_replicas_also_those_of_nodes_that_are_gone() -> None:
    rig = DataRig()
    assert told(rig).held["train/0"] == PartitionReplicas("train/0", 10, ("n1", "n2"))
    rig.expire("n2")
    assert told(rig).held["train/1"] == PartitionReplicas("train/1", 10, ("n1", "n2"))


def test_an_experiment_without_partitioned_data_has_no_visits() -> None:
    rig = Rig()
    rig.create()
    rig.start("1", "n1/0")
    found = told(rig)
    assert (found.told, found.held, found.moved) == ({}, {}, [])
