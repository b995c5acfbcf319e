"""Tests of the division of slots: by hand, against an independent definition and a simple implementation, and of its cost."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard.policy.vocabulary import StreamId
from hopyard_engine.core.cluster.cluster import ClusterState, Tenant
from hopyard_engine.core.cluster.fair_share import Claim, water_fill
from hopyard_engine.core.events import NodeDrained, NodeJoined, ShareSet
from hopyard_engine.core.types import SlotSpec

pytestmark = pytest.mark.quick

Wish = tuple[str, float, int | None, int | None]
"""Name, weight, cap (`resources.slots`), demand (what the policy can use)."""


def cluster_of(slots: int, wishes: list[Wish]) -> ClusterState:
    """Return a cluster with one node and these experiments."""
    cluster = ClusterState()
    if slots:
        cluster.join(NodeJoined(0.0, "n", "a", tuple(SlotSpec(f"n/{i}") for i in range(slots))))
    for name, weight, cap, demand in wishes:
        cluster.enter(StreamId(name), Tenant(weight, cap))
        cluster.set_demand(StreamId(name), demand)
    return cluster


# A slot goes to the experiment whose level is lowest after it gets the slot. Level = slots / weight; ties by name.
CASES: dict[str, tuple[int, list[Wish], dict[str, int]]] = {
    # Levels after a slot: a 1, 2, ...; b 1/3, 2/3, 1, 4/3, ... b gets 1/3 and 2/3, then both would reach 1: a is first by its name,
    # then b.
    "weights 1 and 3 on 4 slots": (4, [("a", 1, None, None), ("b", 3, None, None)], {"a": 1, "b": 3}),
    # The fifth slot: a would reach 2, b 4/3.
    "weights 1 and 3 on 5 slots": (5, [("a", 1, None, None), ("b", 3, None, None)], {"a": 1, "b": 4}),
    # Without a cap all three get one per level: 2, 2, 2. With cap 1 a leaves one, and b is before c by its name.
    "a cap frees a slot for the others": (
        6,
        [("a", 1, 1, None), ("b", 1, None, None), ("c", 1, None, None)],
        {"a": 1, "b": 3, "c": 2},
    ),
    # Weighted quotas of 12 are 1, 3, 8. c may take 2: 10 are left for 1 and 3, quotas 2.5 and 7.5. Levels up to 2 give a 2
    # and b 6; the next two: b at 7/3, then b at 8/3 before a at 3.
    "a cap below the quota is divided by weight": (
        12,
        [("a", 1, None, None), ("b", 3, None, None), ("c", 8, 2, None)],
        {"a": 2, "b": 8, "c": 2},
    ),
    # No experiment gets unusable slots: 2 + 1 of 5, and 2 stay idle.
    "caps below the slots leave some idle": (5, [("a", 1, 2, None), ("b", 4, 1, None)], {"a": 2, "b": 1}),
    # b's policy waits for an answer and can use none: a has all, whatever the weights.
    "zero demand": (4, [("a", 1, None, None), ("b", 100, None, 0)], {"a": 4, "b": 0}),
    # b's quota is 3, it can use 1; a has the 3 others.
    "a demand of one leaves the rest": (4, [("a", 1, None, None), ("b", 3, None, 1)], {"a": 3, "b": 1}),
    # Five at level 1, three slots: the first three by name.
    "more experiments than slots": (
        3,
        [(name, 1, None, None) for name in "abcde"],
        {"a": 1, "b": 1, "c": 1, "d": 0, "e": 0},
    ),
    # The first slot puts a at 1/0.25 = 4, b at 1/0.5 = 2, c at 1/1.75 = 4/7. c: 4/7, 8/7, 12/7; then b at 2 before c at
    # 16/7; c at 16/7 and 20/7, then c at 24/7; that are 7 slots, and a would be at 4 with the next.
    "fractional weights": (
        7,
        [("a", 0.25, None, None), ("b", 0.5, None, None), ("c", 1.75, None, None)],
        {"a": 0, "b": 1, "c": 6},
    ),
    # One slot: a would reach 1/1, b 1/2.
    "one slot goes to the heavier one": (1, [("a", 1, None, None), ("b", 2, None, None)], {"a": 0, "b": 1}),
    # Nothing for a cap of 0, and the odd slot to the first by name: b at 2 before c at 2.
    "a cap of 0, and a tie": (
        3,
        [("a", 9, 0, None), ("b", 1, None, None), ("c", 1, None, None)],
        {"a": 0, "b": 2, "c": 1},
    ),
    # None means as many as there are: the smaller of cap and demand counts where both are given (a: 2, b: 2, c: all).
    "cap and demand together": (
        9,
        [("a", 1, 2, 7), ("b", 1, 7, 2), ("c", 1, None, None)],
        {"a": 2, "b": 2, "c": 5},
    ),
    # 4 + 4 + 2: a and b reach 4/2 = 2 like c at 2/1; of the two left, a takes 5/2, then b 5/2, before c at 3.
    "three weights in integers": (
        12,
        [("a", 2, None, None), ("b", 2, None, None), ("c", 1, None, None)],
        {"a": 5, "b": 5, "c": 2},
    ),
    "no slot": (0, [("a", 1, None, None)], {"a": 0}),
    "nobody": (3, [], {}),
}


@pytest.mark.parametrize(("slots", "wishes", "expected"), CASES.values(), ids=CASES)
def test_by_hand(slots: int, wishes: list[Wish], expected: dict[str, int]) -> None:
    cluster = cluster_of(slots, wishes)
    events = cluster.rebalance(1.0, {})
    assert {name: tenant.share for name, tenant in cluster.tenants.items()} == expected
    told = {e.stream: e.slots for e in events if isinstance(e, ShareSet)}
    assert told == {name: share for name, share in expected.items() if share}
    # Each is also given its share, since all slots are free.
    assert {name: len(tenant.granted) for name, tenant in cluster.tenants.items()} == expected


def test_a_drained_node_counts_for_nobody() -> None:
    # 4 slots on n, 2 on m; m is drained: weights 1 and 3 divide 4, not 6.
    cluster = cluster_of(4, [("a", 1, None, None), ("b", 3, None, None)])
    cluster.join(NodeJoined(0.0, "m", "a", (SlotSpec("m/0"), SlotSpec("m/1"))))
    cluster.drain(NodeDrained(0.0, "m"))
    cluster.rebalance(1.0, {})
    assert {name: tenant.share for name, tenant in cluster.tenants.items()} == {"a": 1, "b": 3}


# ------------------------------------------------------------------------------------------------------------ properties


def plainly(slots: int, claims: list[Claim]) -> dict[str, int]:
    """Return the same division by a simple loop that gives each slot to the lowest level of all claims."""
    shares = {claim.name: 0 for claim in claims}
    for _ in range(slots):
        open_claims = [c for c in claims if shares[c.name] < c.cap]
        if not open_claims:
            break
        lowest = min(open_claims, key=lambda c: (shares[c.name] + 1) / c.weight)
        shares[lowest.name] += 1
    return shares


WEIGHTS = st.one_of(st.integers(1, 9).map(float), st.floats(0.01, 100.0), st.sampled_from([0.1, 0.2, 0.3, 0.7]))


@pytest.mark.merge
@given(st.integers(0, 60), st.lists(st.tuples(WEIGHTS, st.integers(0, 20)), max_size=9))
def test_the_heap_divides_as_the_plain_version_does(slots: int, raw: list[tuple[float, int]]) -> None:
    claims = [Claim(str(i), weight, cap) for i, (weight, cap) in enumerate(raw)]
    assert water_fill(slots, claims) == plainly(slots, claims)


SMALL = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5)), min_size=1, max_size=4)


@pytest.mark.merge
@given(st.integers(0, 8), SMALL)
def test_no_other_division_is_fairer(slots: int, raw: list[tuple[int, int]]) -> None:
    """Check weighted max-min fairness in integers by its definition.

    Each slot raises its receiver to a level, slots per weight. Of all ways to divide as many slots as can be used, the result must
    raise to the lowest levels: its highest level is as low as possible, and so are all others in order.
    """
    claims = [Claim(str(i), float(weight), cap) for i, (weight, cap) in enumerate(raw)]
    shares = tuple(water_fill(slots, claims).values())
    usable = min(slots, sum(cap for _, cap in raw))
    divisions = [d for d in itertools.product(*(range(cap + 1) for _, cap in raw)) if sum(d) == usable]

    def raised_to(division: tuple[int, ...]) -> list[Fraction]:
        raised = zip(division, raw, strict=True)
        return sorted((Fraction(n, weight) for got, (weight, _) in raised for n in range(1, got + 1)), reverse=True)

    assert shares in divisions
    mine = raised_to(shares)
    for division in divisions:
        assert all(m <= other for m, other in zip(mine, raised_to(division), strict=True))


@pytest.mark.merge
@given(st.integers(0, 40), SMALL)
def test_nobody_can_be_raised_without_lowering_one_that_is_no_higher(slots: int, raw: list[tuple[int, int]]) -> None:
    claims = [Claim(str(i), float(weight), cap) for i, (weight, cap) in enumerate(raw)]
    shares = water_fill(slots, claims)
    level = {c.name: Fraction(shares[c.name], int(c.weight)) for c in claims}
    for mine, other in itertools.permutations(claims, 2):
        raised = Fraction(shares[mine.name] + 1, int(mine.weight))
        if shares[mine.name] < mine.cap and shares[other.name] > 0:
            assert raised >= level[other.name]


class Counted(float):
    """A weight that counts how often a number is divided by it."""

    divisions = 0

    def __rtruediv__(self, other: float) -> float:
        Counted.divisions += 1
        return other / float(self)


def test_a_slot_costs_no_look_at_every_experiment() -> None:
    slots, experiments = 4096, 512
    Counted.divisions = 0
    shares = water_fill(slots, [Claim(str(i), Counted(1 + i % 7), slots) for i in range(experiments)])
    assert sum(shares.values()) == slots
    assert Counted.divisions <= slots + experiments
