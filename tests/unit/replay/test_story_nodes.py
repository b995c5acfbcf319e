"""Tests of the story's sentences about nodes, and about the snapshots and partitions on them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hopyard.policy.vocabulary import RunEndReason, RunKey, StartJob, StreamId
from hopyard_engine.core.events import (
    CopiesEvicted,
    DataChanged,
    Imported,
    NodeBack,
    NodeEvicted,
    NodeLost,
    SnapshotShipped,
    SnapshotStored,
    Started,
)
from hopyard_engine.core.types import PlacedData, PlacedPartition
from hopyard_engine.policy_host import answer_text
from tests.unit.core.rig import Rig, snapshot
from tests.unit.replay.story import last, quiet, told

pytestmark = pytest.mark.quick


def test_a_node_that_comes_back_late(rig: Rig) -> None:
    rig.create()
    rig.start("1", "n1/0")
    rig.report(1)
    key = rig.key()
    rig.expire("n1")
    rig.join("n1", 2, runs=(key,))
    assert last(rig, NodeBack) == (
        "node n1 is back with 1 run and 0 snapshots of this experiment; run 1 of job 1, which node n1 still has, is ended "
        "there, and its messages since then are refused; that run was given up"
    )
    rig.start("1", "n1/0")
    assert answer_text.unwanted("n1", key, rig.job().attempt).endswith("; the job is at attempt 2")


def test_an_agent_that_ran_on_while_the_cluster_was_restored(rig: Rig) -> None:
    rig.create()
    rig.start("1", "n1/0")
    rig.report(1)
    later = RunKey(StreamId("x"), "9", 4)  # The restored cluster does not know this job.
    other = RunKey(StreamId("y"), "1", 1)
    rig.join("n1", 2, "b", discarded=(rig.key(), later, other))
    discarded = [
        f"the cluster was restored from a backup while node n1 kept running, so {run} is ended there, and its reports since the "
        "backup are discarded"
        for run in ("run 1 of job 1", "run 4 of job 9")
    ]
    assert last(rig, NodeBack) == "; ".join(
        ("node n1 is back with 0 runs and 0 snapshots of this experiment", *discarded)
    )


def test_a_snapshot_that_a_killed_agent_left_behind(rig: Rig) -> None:
    rig.create()
    rig.start("1", "n1/0")
    rig.report(1)
    rig.taken(1)
    rig.join("n1", 2, "b", snapshots=("s1",))
    assert "node n1 is ordered to upload the snapshot of job 1 at 1" in last(rig, NodeBack)
    answer = SnapshotShipped(rig.now, StreamId("x"), "n1", 1, "1", 1, "s1", "the store is full")
    assert quiet(rig, answer) == "node n1 could not upload the snapshot of job 1 at 1: the store is full"
    rig.join("n1", 2, "c", snapshots=("s1",))
    answer = replace(answer, order=2, error="")
    assert quiet(rig, answer) == "node n1 uploaded the snapshot of job 1 at 1"


def test_a_lost_node_tells_what_was_lost_and_where_it_goes_on(rig: Rig) -> None:
    rig.create()
    rig.start(until=9)
    rig.report(5)
    rig.taken(5)
    rig.stored(5)
    rig.report(7)
    before = len(rig.journal)
    rig.expire("n1")
    assert told(rig)[before].text == (
        "node n1 is lost, so run 1 of job 1 was lost at 7; job 1 is SUSPENDED and continues from the snapshot at 5"
    )


def test_a_hop_says_where_from_and_a_lost_snapshot_what_that_means() -> None:
    rig = Rig(capacity=1, ship_every=0)
    rig.join("n2")
    rig.create()
    rig.start("1", "n1/0", until=1)
    rig.report(1, at_until=True)
    rig.ended(RunEndReason.UNTIL, 1, snapshot(1))
    rig.command(StartJob("1", ("n2/0",), until=2, inputs={"n2/0": "b"}, preemptible=False))
    assert told(rig)[-1].text.endswith(
        "the policy starts job 1 on n2/0 up to 2 with b not to be preempted (attempt 2, from the snapshot at 1 on n1)"
    )
    rig.say(rig.key(), Started(1, 2048))
    assert last(rig) == "run 2 of job 1 is up from the snapshot at 1, 2.0 KiB of it from another agent"
    rig.report(2, at_until=True)
    rig.ended(RunEndReason.UNTIL, 2, snapshot(2))
    rig.expire("n2")
    assert last(rig, NodeLost) == (
        "node n2 is lost; job 1 goes back to its snapshot at 1: the one at 2 existed only there"
    )


def test_a_quota_that_does_not_suffice_is_told_beside_its_event() -> None:
    rig = Rig(capacity=1, snapshot_quota=4)
    rig.create()
    rig.start("1", "n1/0")
    rig.report(1)
    rig.taken(1)
    assert last(rig) == (
        "run 1 of job 1 saved a snapshot at 1 (10 B); snapshots take 10 bytes, 6 more than snapshot.quota; all of them "
        "are still needed, so none is deleted"
    )


def test_that_a_snapshot_was_stored_is_routine_and_that_it_was_not_is_none() -> None:
    rig = Rig(capacity=1)
    rig.create()
    rig.start("1", "n1/0")
    for position in (1, 2):
        rig.report(position)
        rig.taken(position)
    rig.stored(1)
    line = told(rig)[-1]
    about = line.about("1")
    assert line.routine
    assert about is not None
    assert about.routine
    rig.say(rig.key(), SnapshotStored(2, "s2", "no space left"))
    assert [one.text for one in told(rig) if one.routine] == [line.text]


def test_evicted_copies_are_told() -> None:
    rig = Rig(capacity=1)
    rig.create()
    rig.start("1", "n1/0")
    rig.report(1)
    rig.taken(1)
    rig.stored(1)
    rig.feed(NodeEvicted(rig.now, "n1", ("s1",)))
    assert last(rig, CopiesEvicted) == "node n1 deleted its copies of 1 snapshot in the store, to free space"


def test_where_partitions_are_is_told() -> None:
    rig = Rig(capacity=1, data=PlacedData("d", (PlacedPartition("train/0"),)))
    here = PlacedPartition("train/0", places={"n2": "/b", "n1": "/a"})
    far = PlacedPartition("eval/0", url="s3://b/e")
    assert quiet(rig, DataChanged(rig.now, StreamId("x"), (here, far))) == (
        "partition train/0 is on n1, n2; no node has read partition eval/0 yet"
    )
    assert (
        quiet(rig, DataChanged(rig.now, StreamId("x"), (PlacedPartition("train/0"),)))
        == "no live node holds partition train/0"
    )
    assert "the policy was informed that partitions are held by other nodes" in [line.text for line in told(rig)]


def test_a_lost_node_takes_its_partitions_along() -> None:
    parts = [PlacedPartition(f"train/{n}", places={f"n{n}": "/a"}, homes=(f"n{n}",)) for n in (1, 2)]
    rig = Rig(capacity=1, data=PlacedData("d", tuple(parts)))
    rig.expire("n1")
    assert last(rig, NodeLost) == "node n1 is lost; no live node holds partition train/1"


def test_an_import_is_told_with_what_came_along() -> None:
    rig = Rig(capacity=1)
    assert quiet(rig, Imported(rig.now, StreamId("x"), "r", ("s1",))).startswith(
        "the experiment was imported from another cluster with 1 snapshot"
    )
