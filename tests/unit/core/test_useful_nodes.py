"""Tests of policies that can use only slots of certain nodes: they get those and release others, within their share."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard.policy.vocabulary import Answer, ReserveSlot, RunEndReason, StreamId, WakeAt
from hopyard_engine.core import Core
from hopyard_engine.core.cluster.cluster import ClusterState, Tenant
from hopyard_engine.core.cluster.division import SlotKind, SlotRequest, divide
from hopyard_engine.core.cluster.fair_share import Claim
from hopyard_engine.core.effects import UpCall
from hopyard_engine.core.events import NodeJoined, PolicyAnswered, Requested, StreamCreated
from hopyard_engine.core.types import SlotSpec
from hopyard_engine.explain.waiting_reasons import WaitingReasons
from hopyard_engine.journal.codec import decode, encode, kind_of
from tests.unit.core.plain_division import divide_plainly
from tests.unit.core.rig import Rig, settings, snapshot

pytestmark = pytest.mark.quick


def wants(rig: Rig, *nodes: str) -> None:
    rig.nodes = nodes
    rig.command()


def test_idle_slots_of_no_use_go_back_and_others_come() -> None:
    rig = Rig(capacity=1, slots=1)
    rig.join("n2", 1)
    assert list(rig.stream.slots) == ["n1/0"]
    wants(rig, "n2")
    assert (list(rig.stream.slots), rig.stream.share) == (["n2/0"], 1)
    wants(rig, "n1", "n2")
    assert list(rig.stream.slots) == ["n2/0"]  # No slot changes without need.
    wants(rig, "n1")
    wants(rig)
    assert list(rig.stream.slots) == ["n1/0"]


def test_a_busy_slot_stays_until_its_run_has_left_and_a_reserved_one_until_it_is_released() -> None:
    rig = Rig(capacity=1, slots=1)
    rig.join("n2", 1)
    rig.create()
    rig.start("1", "n1/0", until=1)
    wants(rig, "n2")
    assert list(rig.stream.slots) == ["n1/0"]
    rig.report(1, at_until=True)
    rig.ended(RunEndReason.UNTIL, 1, snapshot(1))
    assert list(rig.stream.slots) == ["n2/0"]
    rig.command(ReserveSlot("n2/0"))
    wants(rig, "n1")
    assert list(rig.stream.slots) == ["n2/0"]


def test_where_no_slot_is_of_use_it_waits_and_says_so() -> None:
    rig = Rig(capacity=1)
    rig.create()
    wants(rig, "n3", "n4")
    assert (list(rig.stream.slots), rig.stream.share) == ([], 0)
    why = "waits for a slot: its policy can use slots of nodes n3 and n4 only, where there is none now"
    assert str(WaitingReasons(rig.stream, rig.core.cluster, rig.now).job(rig.job())) == why
    rig.join("n4", 2)
    assert list(rig.stream.slots) == ["n4/0", "n4/1"]


def test_an_older_journal_says_nothing_of_nodes_and_a_recovery_knows_them() -> None:
    rig = Rig(capacity=1, slots=1)
    rig.join("n2", 1)
    assert all(b'"nodes"' not in encode(event) for event in rig.journal if isinstance(event, PolicyAnswered))
    wants(rig, "n2")
    again = Core()
    for event in [decode(kind_of(event), encode(event)) for event in rig.journal]:
        again.restore(event)  # type: ignore[arg-type]
    again.recovered()
    assert again.cluster.tenants[StreamId("x")].nodes == {"n2"}
    assert list(again.streams[StreamId("x")].slots) == ["n2/0"]


class Two(Rig):
    """A rig with a second experiment, y, whose policy can use only slots of the nodes `of_use`."""

    of_use: tuple[str, ...] = ()

    def answer(self, call: UpCall) -> PolicyAnswered:
        if call.stream != "y":
            return super().answer(call)
        commands = (WakeAt("keep", 1e9),) if call.number == 1 else ()
        return PolicyAnswered(self.now, StreamId("y"), Answer(call.number, None, commands), nodes=self.of_use)


def test_another_experiment_leaves_the_slot_that_only_one_can_use_for_one_that_is_as_good_to_it() -> None:
    rig = Two(capacity=1)
    rig.join("n2", 1)
    rig.create()
    rig.start("1", "n1/0")
    rig.feed(StreamCreated(rig.now, StreamId("y"), settings()))
    stream, y = rig.stream, rig.core.streams[StreamId("y")]
    assert (list(stream.slots), list(y.slots)) == (["n1/0"], ["n2/0"])
    rig.of_use = ("n1",)
    rig.feed(Requested(rig.now, StreamId("y"), "r", {}, 1))
    assert stream.draining == {"n1/0"}
    assert list(y.slots) == []
    rig.ended(RunEndReason.SUSPENDED, 0)
    assert (list(stream.slots), list(y.slots)) == (["n2/0"], ["n1/0"])


def test_slots_of_use_to_one_only_are_left_to_it() -> None:
    here, there = SlotKind(1, 0, frozenset({"b"})), SlotKind(1, 0)
    wants = [SlotRequest(Claim("a", 1, 9), granted={here: 1}), SlotRequest(Claim("b", 1, 1), node_restricted=True)]
    assert divide({here: 1, there: 1}, wants).plan == {"a": {there: 1}, "b": {here: 1}}
    assert divide({there: 2}, wants).shares == {"a": 2, "b": 0}


KINDS = (
    SlotKind(1),
    SlotKind(1, 0, frozenset("a")),
    SlotKind(2, 0, frozenset("ab")),
    SlotKind(2, 1, frozenset("c")),
)


@pytest.mark.merge
@given(
    slots=st.dictionaries(st.sampled_from(KINDS), st.integers(1, 4), min_size=1),
    given_wants=st.lists(
        st.tuples(st.sampled_from([0.5, 1.0, 2.0]), st.integers(0, 4), st.integers(1, 2), st.booleans()),
        min_size=1,
        max_size=3,
    ),
)
def test_the_division_is_the_plain_one(
    slots: dict[SlotKind, int], given_wants: list[tuple[float, int, int, bool]]
) -> None:
    wants = [
        SlotRequest(Claim(name, weight, cap), gang, node_restricted=node_restricted)
        for name, (weight, cap, gang, node_restricted) in zip("abc", given_wants, strict=False)
    ]
    found = divide(slots, wants)
    for want in wants:
        assert all(want.takes(kind) for kind in (found.plan or {}).get(want.claim.name, {}))
    if found.plan is not None:
        assert found.shares == divide_plainly(slots, wants).shares
        planned = sum((Counter(kinds) for kinds in found.plan.values()), Counter[SlotKind]())
        assert all(planned[kind] <= count for kind, count in slots.items())


@pytest.mark.merge
@given(st.lists(st.lists(st.sampled_from("npq"), max_size=2), min_size=1, max_size=3), st.integers(1, 2))
def test_nobody_is_given_what_is_of_no_use_to_it_and_nothing_of_use_lies_idle(
    wishes: list[list[str]], each: int
) -> None:
    cluster = ClusterState()
    for node in "npq":
        cluster.join(NodeJoined(0.0, node, "a", tuple(SlotSpec(f"{node}/{i}") for i in range(each))))
    for name, nodes in zip("abc", wishes, strict=False):
        cluster.enter(StreamId(name), Tenant(1.0, None))
        cluster.set_demand(StreamId(name), None, 1, frozenset(nodes))
    while cluster.unbalanced:
        cluster.rebalance(1.0, {})
    for slot in cluster.slots.values():
        able = [name for name, tenant in cluster.tenants.items() if not tenant.nodes or slot.node in tenant.nodes]
        assert bool(able) is bool(slot.holder)
        assert not able or slot.holder in able
