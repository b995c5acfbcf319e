"""Tests of the timeline from a journal: which job ran on which slot, and when."""

from __future__ import annotations

import pytest

from hopyard.plots import PlottedRun
from hopyard.plots.model import JournalStory
from hopyard.policy.vocabulary import LabelJob, RunEndReason, RunMode, StartJob, SuspendJob, TerminateJob
from hopyard_engine.core.events import NodeJoined
from hopyard_tools.commands.timeline import Timeline
from tests.unit.core.rig import Rig, snapshot

pytestmark = pytest.mark.quick


def told(rig: Rig) -> list[PlottedRun]:
    return all_told(rig).runs


def all_told(rig: Rig) -> JournalStory:
    timeline = Timeline()
    for event in rig.journal:
        timeline.take(event)
    return timeline.told["x"]


def test_a_run_is_told_with_its_slot_its_times_and_why_it_ended() -> None:
    rig = Rig(capacity=2)
    rig.create()
    rig.create()
    rig.now = 110.0
    rig.start("1", "n1/0")
    began = rig.now
    rig.start("2", "n1/1")
    rig.now = 120.0
    rig.report(1)
    rig.command(SuspendJob("1"))
    rig.now = 125.0
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    rig.command(TerminateJob("2"))
    rig.now = 130.0
    rig.ended(RunEndReason.TERMINATED, 0, name="2")
    rig.now = 140.0
    rig.start("1", "n1/1")
    rig.now = 150.0
    rig.expire("n1")
    first, second, third = told(rig)
    assert first == PlottedRun("n1/0", "1", 1, began, 125.0, "SUSPENDED")
    assert (second.slot, second.job, second.end, second.reason) == ("n1/1", "2", 130.0, "TERMINATED")
    assert (third.slot, third.attempt, third.end, third.reason) == ("n1/1", 2, 150.0, "LOST")


def test_a_run_that_goes_on_has_no_end_and_a_gang_a_bar_on_each_slot() -> None:
    rig = Rig(capacity=2)
    rig.create()
    rig.start("1", "n1/0", "n1/1")
    began = rig.now
    rig.report(1)
    assert told(rig) == [PlottedRun("n1/0", "1", 1, began), PlottedRun("n1/1", "1", 1, began)]


def test_a_run_that_is_measured_says_so() -> None:
    rig = Rig(capacity=1)
    rig.create()
    rig.command(StartJob("1", ("n1/0",), 5, mode=RunMode.PROFILE))
    assert [run.mode for run in told(rig)] == ["PROFILE"]


def test_events_of_the_cluster_itself_are_passed_over() -> None:
    timeline = Timeline()
    timeline.take(NodeJoined(1.0, "n1", "a", ()))
    assert timeline.told == {}


def test_labels_and_pools_are_told_as_they_change() -> None:
    rig = Rig(capacity=2)
    rig.create()
    rig.create()
    rig.now = 110.0
    rig.start("1", "n1/0")
    rig.now = 120.0
    rig.start("2", "n1/1")
    rig.now = 130.0
    rig.command(LabelJob("1", 0.7), LabelJob("2", 0.0))
    rig.now = 140.0
    rig.command(LabelJob("1", 0.7))
    rig.now = 150.0
    rig.command(LabelJob("1", 0.0))
    rig.now = 160.0
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    told = all_told(rig)
    assert [(round(at), label) for at, label in told.labels["1"]] == [(130, 0.7), (150, 0.0)]
    assert [label for _, label in told.labels["2"]] == [0.0]
    assert [(round(at), *counts) for at, *counts in told.pools] == [
        (100, 0, 0),
        (110, 0, 1),
        (120, 0, 2),
        (130, 1, 1),
        (150, 0, 2),
        (160, 0, 1),
    ]


def test_pools_count_the_slots_of_a_gang() -> None:
    rig = Rig(capacity=3)
    rig.create()
    rig.create()
    rig.start("1", "n1/0", "n1/1")
    rig.start("2", "n1/2")
    rig.command(LabelJob("1", 0.7))
    assert all_told(rig).pools[-1][1:] == (2, 1)
