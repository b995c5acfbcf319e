"""Tests that policies in processes have the same results and snapshots of earlier experiments as policies in the scheduler."""

from __future__ import annotations

import pytest

from hopyard._runtime.policy_process.state import MirroredState
from hopyard._runtime.policy_process.view import RemoteView
from hopyard.policy.vocabulary import Report, RunEndReason, StartJob
from hopyard.v1 import policy_pb2 as pb
from hopyard_engine.core.effects import UpCall
from hopyard_engine.core.events import Ended
from hopyard_engine.core.types import EarlierTrial, Measured
from hopyard_engine.policy_host import CoreView
from hopyard_scheduler.policy_process.state_delta import StateDelta
from tests.reasons import said
from tests.unit.core.rig import Rig, snapshot
from tests.unit.policy_process.twin import seen

pytestmark = pytest.mark.quick

REPORTS = tuple(Report(position, {"score": position / 10}, 2.0) for position in range(1, 5))
SAVED = (
    EarlierTrial("old/1", {"lr": 0.1}, REPORTS, snapshots=(snapshot(2, "two"), snapshot(4, "four"))),
    EarlierTrial("old/2", {"lr": 0.2}, REPORTS[2:], ("old/1", 2), (snapshot(3, "three"),)),
)


class Far:
    """Simulates a policy process: the state that it has mirrored from the scheduler."""

    def __init__(self) -> None:
        self.changes, self.state = StateDelta(), MirroredState()

    def hear(self, rig: Rig) -> list[str]:
        """Send it the last up-call, compare its view with the scheduler's, and return the ids of the earlier trials that were sent."""
        call = rig.of(UpCall)[-1]
        message = pb.UpCall.FromString(self.changes.up_call(rig.stream, call).SerializeToString())
        self.state.apply(message.changes)
        there = seen(RemoteView(self.state, call.number, call.at, call.seed))
        assert there == seen(CoreView(rig.stream, call))
        return [change.earlier.id for change in message.changes if change.WhichOneof("change") == "earlier"]


def test_snapshots_of_earlier_experiments_are_told_and_when_they_become_fewer() -> None:
    rig, far = Rig(earlier=SAVED, max_position=6), Far()
    rig.create()
    assert far.hear(rig) == ["old/1", "old/2"]
    assert {name: one.snapshots for name, one in far.state.earlier.items()} == {"old/1": (2, 4), "old/2": (3,)}
    rig.command(StartJob("1", ("n1/0",), from_snapshot=("old/1", 2)))
    assert far.hear(rig) == []
    rig.say(rig.key(), Ended(RunEndReason.LOST, 2, cause=said("gone"), snapshot_missing=True))
    assert far.hear(rig) == ["old/1"]
    assert far.state.earlier["old/1"].snapshots == (4,)


def test_what_earlier_experiments_measured_and_kinds_of_hosts_are_told() -> None:
    known = (Measured("EPYC", 1, 8.0), Measured("EPYC", 2, 4.4), Measured("Xeon", 1, 9.0))
    rig, far = Rig(scaling=known, hardware="EPYC", concurrency=3), Far()
    rig.create()
    far.hear(rig)
    assert far.state.scaling == {"EPYC": {1: 8.0, 2: 4.4}, "Xeon": {1: 9.0}}
    assert {slot.hardware for slot in far.state.slots.values()} == {"EPYC"}
    rig.create()
    far.hear(rig)


def test_the_range_of_the_metric_is_told() -> None:
    rig, far = Rig(low=-500.0, high=300.0), Far()
    rig.create()
    far.hear(rig)
    (terms,) = far.state.experiments.values()
    assert (terms.low, terms.high) == (-500.0, 300.0)
    rig, far = Rig(low=0.0), Far()
    rig.create()
    far.hear(rig)
    (terms,) = far.state.experiments.values()
    assert (terms.low, terms.high) == (0.0, None)
