"""Tests of partitioned data in the core: replicas, refused commands, the input of a run, and waiting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard.policy.vocabulary import (
    AllocateJobs,
    Data,
    ExperimentState,
    Partition,
    RunEndReason,
    RunMode,
    SlotsChange,
    StartJob,
    StreamId,
    Verdict,
)
from hopyard.policy.vocabulary.reasons import explain
from hopyard_engine.core import Core
from hopyard_engine.core.effects import Start, UpCall
from hopyard_engine.core.events import DataChanged, Imported, NodeJoined
from hopyard_engine.core.state.partitions import Place, PlacedPartitions
from hopyard_engine.core.types import PlacedData, PlacedPartition, SlotSpec
from hopyard_engine.explain.waiting_reasons import WaitingReasons
from hopyard_engine.journal.codec import decode, encode, kind_of
from hopyard_engine.policy_host.view import CoreView
from tests.unit.core.rig import Rig, snapshot

pytestmark = pytest.mark.quick


def placed(name: str, *nodes: str, url: str = "", homes: tuple[str, ...] = ("n1", "n2")) -> PlacedPartition:
    """Return a partition with replicas on these nodes."""
    return PlacedPartition(name, 10, f"hash of {name}", 5, {n: url or f"/{n}/{name}" for n in nodes}, homes, url)


DATA = PlacedData(
    "fashion", (placed("train/0", "n1"), placed("train/1", "n2"), placed("train/2"), placed("eval/0", "n1", "n2"))
)


class DataRig(Rig):
    """An engine core with two nodes of one slot each and an experiment on partitioned data."""

    def __init__(self, data: PlacedData = DATA, **terms: object) -> None:
        super().__init__(capacity=1, data=data, **terms)
        self.join("n2")

    def try_start(self, slot: str, partition: str, **options: object) -> str:
        """Start job 1 on a slot with a partition; return the reason of a refusal, or an empty string."""
        return self.refusal(StartJob("1", (slot,), inputs={slot: partition}, **options))  # type: ignore[arg-type]

    def refusal(self, command: StartJob) -> str:
        """Let the policy give a command; return the reason of a refusal, or an empty string."""
        self.command(command)
        found: list[Verdict] = [
            *self.stream.conversation.verdicts,
            *(v for call in self.of(UpCall) for v in call.verdicts),
        ]
        return next((str(v.reason) for v in found if v.command == command), "")

    def seen(self) -> Data:
        """Return the data set as the policy sees it."""
        found = CoreView(self.stream, UpCall(StreamId("x"), 1, self.now, 0, AllocateJobs())).data
        assert found is not None
        return found

    def why(self) -> tuple[str, str]:
        """Return the waiting reasons of job 1 and of the experiment."""
        waiting = WaitingReasons(self.stream, self.core.cluster, self.now)
        return explain(waiting.job(self.job())), explain(waiting.experiment(self.stream.founder))


def test_policies_see_the_partitions_and_who_holds_them() -> None:
    assert DataRig().seen() == Data(
        "fashion",
        (
            Partition("train/0", 5, 10, ("n1",)),
            Partition("train/1", 5, 10, ("n2",)),
            Partition("train/2", 5, 10, ()),
        ),
        (Partition("eval/0", 5, 10, ("n1", "n2")),),
    )
    assert CoreView(Rig().stream, UpCall(StreamId("x"), 1, 0.0, 0, AllocateJobs())).data is None


def test_a_run_is_told_where_its_partition_is_and_keeps_its_name() -> None:
    rig = DataRig()
    rig.create()
    rig.start("1", "n2/0", inputs={"n2/0": "train/1"}, until=1)
    (start,) = [body for body in (send.body for send in rig.core.unacknowledged("n2")) if isinstance(body, Start)]
    assert (start.input, start.place) == ("train/1", Place("/n2/train/1", "hash of train/1", 10))
    assert rig.run().inputs == {"n2/0": "train/1"}


def test_what_a_node_does_not_hold_is_refused() -> None:
    rig = DataRig()
    rig.create()
    assert rig.try_start("n1/0", "train/1") == "node n1 does not hold train/1 of data set fashion; n2 does"
    assert rig.try_start("n1/0", "train/2") == "no live node holds train/2 of data set fashion"
    has = "it has train/0, train/1, train/2 and eval/0"
    assert rig.try_start("n1/0", "train/9") == f"data set fashion has no partition 'train/9'; {has}"
    assert rig.try_start("n1/0", "/a/path") == f"data set fashion has no partition '/a/path'; {has}"
    assert rig.job().attempt == 0
    elsewhere = StartJob("1", ("n1/0",), inputs={"n2/0": "train/1"})
    assert rig.refusal(elsewhere) == "inputs for slots that the run is not on: n2/0"
    assert rig.try_start("n1/0", "train/0") == ""
    assert rig.job().attempt == 1


def test_without_data_inputs_are_paths() -> None:
    rig = Rig()
    rig.create()
    rig.start("1", "n1/0", inputs={"n1/0": "/data/part"})
    starts = [send.body for send in rig.core.unacknowledged("n1")]
    assert [(s.input, s.place) for s in starts if isinstance(s, Start)] == [("/data/part", None)]


def test_an_evaluation_reads_a_partition_too() -> None:
    rig = DataRig(keep_best=0)
    rig.create()
    rig.start("1", "n1/0", inputs={"n1/0": "train/0"}, until=1)
    rig.report(1, at_until=True)
    rig.ended(RunEndReason.UNTIL, 1, snapshot(1))
    assert rig.try_start("n2/0", "train/0", mode=RunMode.EVALUATE).startswith("node n2 does not hold train/0")
    assert rig.try_start("n2/0", "eval/0", mode=RunMode.EVALUATE) == ""


def test_changes_are_told_once_and_only_if_they_are_some() -> None:
    rig = DataRig()
    before = len(rig.called(SlotsChange))
    rig.feed(DataChanged(rig.now, StreamId("x"), (placed("train/2", "n2"),)))
    assert rig.seen().train[2].nodes == ("n2",)
    assert len(rig.called(SlotsChange)) == before + 1
    rig.feed(DataChanged(rig.now, StreamId("x"), (placed("train/2", "n2"),)))
    assert len(rig.called(SlotsChange)) == before + 1
    assert [type(event) for event in rig.journal].count(DataChanged) == 1
    plain = Rig()
    assert plain.feed(DataChanged(plain.now, StreamId("x"), (placed("train/2", "n2"),))) == []


def test_a_lost_node_holds_nothing_when_the_policy_is_told() -> None:
    rig = DataRig()
    seen: list[tuple[str, ...]] = []

    def script(call: object) -> tuple[None, list[object]]:
        if isinstance(call, SlotsChange) and call.lost:
            seen.append(rig.seen().train[1].nodes)
        return None, []

    rig.script = script  # type: ignore[assignment]
    rig.expire("n2")
    assert seen == [()]
    assert rig.seen().evaluate[0].nodes == ("n1",)


def test_a_partition_with_a_url_is_read_anywhere_first_and_then_where_it_is() -> None:
    url = "s3://b/train-0"
    rig = DataRig(PlacedData("far", (placed("train/0", url=url, homes=()),)))
    rig.create()
    assert rig.seen().train[0].nodes == ("n1", "n2")
    rig.feed(DataChanged(rig.now, StreamId("x"), (placed("train/0", "n2", url=url, homes=()),)))
    assert rig.seen().train[0].nodes == ("n2",)
    rig.expire("n2")
    assert rig.seen().train[0].nodes == ("n1",)
    assert rig.try_start("n1/0", "train/0") == ""
    (start,) = [send.body for send in rig.core.unacknowledged("n1")]
    assert isinstance(start, Start)
    assert start.place == Place(url, "hash of train/0", 10)


def test_who_waits_says_which_partition_is_missing() -> None:
    rig = DataRig()
    rig.create()
    lost = "partition train/2 of data set fashion: nodes n1 and n2 lost the file (hopyard data show fashion)"
    assert rig.why() == (f"waits for {lost}", f"no job runs: it waits for {lost}")
    rig.expire("n2")
    away = "partitions train/1 and train/2 of data set fashion: node n2 is away (hopyard data show fashion)"
    assert rig.why()[0] == f"waits for {away}"
    rig.demand = lambda: 0
    rig.feed(NodeJoined(rig.now, "n1", "b", (SlotSpec("n1/0"),)))
    assert "partitions train/0, train/1 and 2 more" in rig.why()[1]


def test_an_experiment_is_not_over_while_a_partition_is_missing() -> None:
    rig = DataRig()
    rig.create()
    rig.stream.timers.clear()
    rig.feed(DataChanged(rig.now, StreamId("x"), (placed("train/1", "n2"), placed("train/0", "n1"))))
    rig.stream.conversation.at_rest, rig.stream.conversation.allocation_due = True, False
    rig.feed(DataChanged(rig.now, StreamId("x"), (placed("train/1", "n1", "n2"),)))
    states = [rig.stream.state]
    rig.feed(DataChanged(rig.now, StreamId("x"), (placed("train/2", "n1"),)))
    states.append(rig.stream.state)
    assert states == [ExperimentState.RUNNING, ExperimentState.COMPLETED]


def test_an_experiment_that_was_brought_here_waits_for_the_catalog() -> None:
    rig = DataRig()
    rig.create()
    rig.feed(Imported(rig.now, StreamId("x"), "r"))
    assert [one.nodes for one in rig.seen().train] == [(), (), ()]
    assert "the catalog has none of that name and content (hopyard data list)" in rig.why()[1]


def test_the_journal_rebuilds_it() -> None:
    rig = DataRig()
    rig.create()
    rig.feed(DataChanged(rig.now, StreamId("x"), (placed("train/2", "n2"),)))
    rig.start("1", "n2/0", inputs={"n2/0": "train/2"}, until=1)
    rig.expire("n2")
    again = Core()
    for event in rig.journal:
        known = decode(kind_of(event), encode(event))
        assert known == event
        again.restore(known)  # type: ignore[arg-type]
    mine, theirs = rig.stream.data, again.streams[StreamId("x")].data
    assert mine is not None
    assert theirs is not None
    assert mine.partitions == theirs.partitions
    assert mine.name == theirs.name


_NODES = ("n1", "n2", "n3")


@pytest.mark.merge
@given(
    st.lists(st.tuples(st.frozensets(st.sampled_from(_NODES)), st.booleans()), min_size=1, max_size=4),
    st.frozensets(st.sampled_from(_NODES), min_size=1),
    st.lists(st.sampled_from(_NODES), max_size=3),
)
def test_what_policies_see_is_what_is_accepted(
    parts: list[tuple[frozenset[str], bool]], slots: frozenset[str], leaving: list[str]
) -> None:
    placed_parts = [
        placed(f"train/{number}", *sorted(nodes), url="s3://b/p" if far else "")
        for number, (nodes, far) in enumerate(parts)
    ]
    catalog = PlacedPartitions(PlacedData("d", tuple(placed_parts)))
    for node in leaving:
        catalog.leave(node)
    here = slots - set(leaving)
    seen = catalog.view(here)
    for (nodes, far), one in zip(parts, seen.train, strict=True):
        holders = nodes - set(leaving)
        assert set(one.nodes) == (holders | here if far and not holders & here else holders)
        for node in here:
            taken = isinstance(catalog.place(one.name, node), Place)
            assert taken is (far or node in holders)
            assert taken or node not in one.nodes
    assert [one.name for one in catalog.missing()] == [
        f"train/{number}" for number, (nodes, far) in enumerate(parts) if not far and not nodes - set(leaving)
    ]
