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


# Level = slots / weight. Each slot goes to the lowest level; at equal levels to the lightest experiment, then to the first by name.
CASES: dict[str, tuple[int, list[Wish], dict[str, int]]] = {
    # One each; b is at 1/3 and 2/3 and gets two more.
    "weights 1 and 3 on 4 slots": (4, [("a", 1, None, None), ("b", 3, None, None)], {"a": 1, "b": 3}),
    # Both are at 1. A slot raises a to 2 or b to 4/3: with (2, 3) the levels are 1 and 2, with (1, 4) they are 1 and 4/3.
    "weights 1 and 3 on 5 slots": (5, [("a", 1, None, None), ("b", 3, None, None)], {"a": 2, "b": 3}),
    # At 6 and 18 both are at 6. With (7, 19) the lowest level is 19/3, with (6, 20) it is 6.
    "weights 1 and 3 on 26 slots": (26, [("a", 1, None, None), ("b", 3, None, None)], {"a": 7, "b": 19}),
    # With (1, 3) the lowest level is 3/10, with (0, 4) it is 0: an experiment with a small weight does not starve.
    "weight 1 next to weight 10": (4, [("a", 1, None, None), ("b", 10, None, None)], {"a": 1, "b": 3}),
    # Without a cap all three get one per level: 2, 2, 2. With cap 1 a leaves one, and b is before c by its name.
    "a cap frees a slot for the others": (
        6,
        [("a", 1, 1, None), ("b", 1, None, None), ("c", 1, None, None)],
        {"a": 1, "b": 3, "c": 2},
    ),
    # c may take 2: 10 are left for weights 1 and 3. At 2 and 6 both are at 2; of the last two, a gets one (3), then b (7/3).
    "a cap below the quota is divided by weight": (
        12,
        [("a", 1, None, None), ("b", 3, None, None), ("c", 8, 2, None)],
        {"a": 3, "b": 7, "c": 2},
    ),
    # No experiment gets unusable slots: 2 + 1 of 5, and 2 stay idle.
    "caps below the slots leave some idle": (5, [("a", 1, 2, None), ("b", 4, 1, None)], {"a": 2, "b": 1}),
    # b's policy waits for an answer and can use none: a has all, whatever the weights.
    "zero demand": (4, [("a", 1, None, None), ("b", 100, None, 0)], {"a": 4, "b": 0}),
    # b's quota is 3, it can use 1; a has the 3 others.
    "a demand of one leaves the rest": (4, [("a", 1, None, None), ("b", 3, None, 1)], {"a": 3, "b": 1}),
    # The first three have the first turns.
    "more experiments than slots": (
        3,
        [(name, 1, None, None) for name in "abcde"],
        {"a": 1, "b": 1, "c": 1, "d": 0, "e": 0},
    ),
    # One each: a is at 4, b at 2, c at 4/7. c gets the four others: 5 slots are 20/7; b would be at 2 without them.
    "fractional weights": (
        7,
        [("a", 0.25, None, None), ("b", 0.5, None, None), ("c", 1.75, None, None)],
        {"a": 1, "b": 2, "c": 4},
    ),
    # The first turn is that of a, also next to a heavier one.
    "one slot": (1, [("a", 1, None, None), ("b", 2, None, None)], {"a": 1, "b": 0}),
    # Nothing for a cap of 0, and the odd slot to the first by name.
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
    # 4 + 4 + 2: all are at 2. Of the two left, the lightest takes one, then a.
    "three weights in integers": (
        12,
        [("a", 2, None, None), ("b", 2, None, None), ("c", 1, None, None)],
        {"a": 5, "b": 4, "c": 3},
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
        none = [c for c in open_claims if not shares[c.name]]
        lowest = (none or sorted(open_claims, key=lambda c: (shares[c.name] / c.weight, c.weight, c.name)))[0]
        shares[lowest.name] += 1
    return shares


WEIGHTS = st.one_of(st.integers(1, 9).map(float), st.floats(0.01, 100.0), st.sampled_from([0.1, 0.2, 0.3, 0.7]))


@pytest.mark.merge
@given(st.integers(0, 60), st.lists(st.tuples(WEIGHTS, st.integers(0, 20)), max_size=9))
def test_the_heap_divides_as_the_plain_version_does(slots: int, raw: list[tuple[float, int]]) -> None:
    claims = [Claim(str(i), weight, cap) for i, (weight, cap) in enumerate(raw)]
    assert water_fill(slots, claims) == plainly(slots, claims)


SMALL = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5)), min_size=1, max_size=4)


def levels(division: tuple[int, ...], weights: tuple[int, ...]) -> list[Fraction]:
    """Return the levels of a division, the lowest first."""
    return sorted(Fraction(share, weight) for share, weight in zip(division, weights, strict=True))


def check(slots: int, weights: tuple[int, ...], caps: tuple[int, ...]) -> None:
    """Compare a division with all other possible ones.

    It must have the greatest sorted list of levels. With fewer slots than claims, the first claims must have one slot each.
    """
    claims = [Claim(str(i), float(w), cap) for i, (w, cap) in enumerate(zip(weights, caps, strict=True))]
    shares = tuple(water_fill(slots, claims).values())
    usable = [i for i, cap in enumerate(caps) if cap]
    if slots < len(usable):
        assert shares == tuple(int(i in usable[:slots]) for i in range(len(caps)))
        return
    total = min(slots, sum(caps))
    divisions = [d for d in itertools.product(*(range(min(cap, slots) + 1) for cap in caps)) if sum(d) == total]
    assert shares in divisions
    assert levels(shares, weights) == max(levels(d, weights) for d in divisions)


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.merge
def test_all_small_divisions_are_max_min_fair(number: int) -> None:
    """Compare each division of up to 6 slots between up to 3 claims of weights 1 to 4 and caps 0 to 6 with all possible ones."""
    most = 6
    for weights in itertools.combinations_with_replacement(range(1, 5), number):
        for caps in itertools.product((0, 1, 2, most), repeat=number):
            for slots in range(most + 1):
                check(slots, weights, caps)


@pytest.mark.merge
@given(st.integers(0, 9), st.lists(st.tuples(st.integers(1, 12), st.integers(0, 6)), min_size=1, max_size=4))
def test_no_other_division_is_fairer(slots: int, raw: list[tuple[int, int]]) -> None:
    weights, caps = zip(*raw, strict=True)
    check(slots, weights, caps)


@pytest.mark.merge
@given(st.integers(0, 40), st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5)), min_size=1, max_size=4))
def test_nobody_can_be_raised_without_lowering_one_that_is_no_higher(slots: int, raw: list[tuple[int, int]]) -> None:
    claims = [Claim(str(i), float(weight), cap) for i, (weight, cap) in enumerate(raw)]
    shares = water_fill(slots, claims)
    level = {c.name: Fraction(shares[c.name], int(c.weight)) for c in claims}
    for mine, other in itertools.permutations(claims, 2):
        lowered = Fraction(shares[other.name] - 1, int(other.weight))
        if shares[mine.name] < mine.cap and shares[other.name] > 0:
            assert lowered <= level[mine.name]


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
