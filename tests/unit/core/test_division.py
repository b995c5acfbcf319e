"""Tests of the division of slots of several kinds, and of slots for gangs."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard_engine.core.cluster.division import SlotKind, SlotRequest, divide
from hopyard_engine.core.cluster.fair_share import Claim, water_fill
from tests.unit.core.plain_division import divide_plainly

pytestmark = pytest.mark.quick

SMALL, BIG, GPU = SlotKind(1), SlotKind(4), SlotKind(1, 1)


def gangs(slots: int, *wants: tuple[str, float, int, int]) -> dict[str, int]:
    """Return the shares of equal slots; a request is (name, weight, cap, gang)."""
    return divide({SMALL: slots}, [SlotRequest(Claim(n, w, cap), gang) for n, w, cap, gang in wants]).shares


@pytest.mark.parametrize(
    ("slots", "wants", "expected"),
    [
        # With half a gang each, neither could train: the first gets one gang, the other waits.
        (2, [("a", 1, 9, 2), ("b", 1, 9, 2)], {"a": 2, "b": 0}),
        # One gang fits, and the third slot remains for others.
        (3, [("a", 1, 9, 2), ("b", 1, 9, 2)], {"a": 2, "b": 0}),
        (3, [("a", 1, 9, 2), ("b", 1, 9, 2), ("c", 1, 9, 1)], {"a": 2, "b": 0, "c": 1}),
        (4, [("a", 1, 9, 2), ("b", 1, 9, 2)], {"a": 2, "b": 2}),
        # The gangs do not fit together: a is first.
        (4, [("a", 1, 3, 3), ("b", 1, 2, 2)], {"a": 3, "b": 0}),
        (4, [("b", 1, 2, 2), ("a", 1, 3, 3)], {"a": 0, "b": 2}),
        (5, [("a", 1, 3, 3), ("b", 1, 2, 2)], {"a": 3, "b": 2}),
        # Weights count slots, not gangs: at 6 and 2 both have two for each unit of weight.
        (8, [("a", 3, 9, 2), ("b", 1, 9, 2)], {"a": 6, "b": 2}),
        # A gang of eight comes before further slots for others, or it would never fit.
        (10, [("a", 1, 10, 1), ("b", 1, 8, 8)], {"a": 2, "b": 8}),
        # A cap of three allows one gang of two.
        (6, [("a", 1, 3, 2), ("b", 1, 9, 1)], {"a": 2, "b": 4}),
        (6, [("a", 1, 1, 2), ("b", 1, 0, 1)], {"a": 0, "b": 0}),
    ],
)
def test_gangs_by_hand(slots: int, wants: list[tuple[str, float, int, int]], expected: dict[str, int]) -> None:
    assert gangs(slots, *wants) == expected


def test_whom_any_slot_serves_leaves_the_few_to_others() -> None:
    both = [SlotRequest(Claim("a", 1, 9)), SlotRequest(Claim("b", 1, 9), need=GPU)]
    division = divide({SMALL: 1, GPU: 1}, both)
    assert division.shares == {"a": 1, "b": 1}
    assert division.plan == {"a": {SMALL: 1}, "b": {GPU: 1}}
    # Also when a has the GPU already.
    held = [SlotRequest(Claim("a", 1, 9), granted={GPU: 1}), SlotRequest(Claim("b", 1, 9), need=GPU)]
    assert divide({SMALL: 1, GPU: 1}, held).plan == {"a": {SMALL: 1}, "b": {GPU: 1}}


def test_who_needs_what_no_slot_has_gets_none() -> None:
    wants = [SlotRequest(Claim("a", 1, 9), need=SlotKind(8)), SlotRequest(Claim("b", 1, 9))]
    assert divide({SMALL: 2, BIG: 1}, wants).shares == {"a": 0, "b": 3}


def test_who_holds_slots_keeps_them_where_that_costs_nobody_anything() -> None:
    wants = [
        SlotRequest(Claim("a", 1, 1), granted={BIG: 1}),
        SlotRequest(Claim("b", 1, 1), need=SlotKind(1), granted={SMALL: 1}),
    ]
    assert divide({SMALL: 2, BIG: 2, GPU: 1}, [*wants, SlotRequest(Claim("c", 1, 1), need=SlotKind(2))]).plan == {
        "a": {BIG: 1},
        "b": {SMALL: 1},
        "c": {BIG: 1},
    }


KINDS = (SMALL, BIG, GPU)
WANTS = st.lists(
    st.tuples(st.sampled_from([0.5, 1.0, 2.0]), st.integers(0, 4), st.sampled_from([SMALL, BIG, GPU, SlotKind(9)])),
    min_size=1,
    max_size=4,
)


def _possible(slots: dict[SlotKind, int], needs: list[SlotKind], shares: tuple[int, ...]) -> bool:
    """Return whether the shares are possible, by Hall's condition.

    Every set of experiments must have at least as many slots that serve one of its members as it has shares.
    """
    experiments = range(len(needs))
    for chosen in itertools.chain.from_iterable(itertools.combinations(experiments, n) for n in experiments):
        serving = sum(n for kind, n in slots.items() if any(kind.serves(needs[i]) for i in chosen))
        if sum(shares[i] for i in chosen) > serving:
            return False
    serving = sum(n for kind, n in slots.items() if any(kind.serves(need) for need in needs))
    return sum(shares) <= serving


@pytest.mark.merge
@given(st.tuples(*[st.integers(0, 4)] * 3), WANTS)
def test_shares_of_different_slots_are_possible_and_weighted_max_min(
    amounts: tuple[int, ...], raw: list[tuple[float, int, SlotKind]]
) -> None:
    slots = dict(zip(KINDS, amounts, strict=True))
    wants = [SlotRequest(Claim(str(i), weight, cap), need=need) for i, (weight, cap, need) in enumerate(raw)]
    needs = [want.need for want in wants]
    division = divide(slots, wants)
    shares = tuple(division.shares[str(i)] for i in range(len(wants)))
    if division.plan is None:
        assert division.shares == water_fill(sum(amounts), [want.claim for want in wants])
    else:
        for kind, amount in slots.items():
            assert sum(plan[kind] for plan in division.plan.values()) <= amount
        for want in wants:
            assert all(kind.serves(want.need) for kind, n in division.plan[want.claim.name].items() if n)
    assert _possible(slots, needs, shares)
    limits = [min(want.claim.cap, 12) for want in wants]
    possible = [d for d in itertools.product(*(range(n + 1) for n in limits)) if _possible(slots, needs, d)]
    # Who has a slot: each in its turn, if one can be found for it without taking the last one of others.
    served: tuple[int, ...] = ()
    for i in range(len(wants)):
        one = (*served, 1, *(0,) * (len(wants) - i - 1))
        served = (*served, int(one in possible))
    assert tuple(min(share, 1) for share in shares) == served
    # Of all divisions in which these have slots, this one is max-min fair.
    weights = [Fraction(want.claim.weight) for want in wants]

    def levels(division: tuple[int, ...]) -> list[Fraction]:
        return sorted(share / weight for share, weight in zip(division, weights, strict=True))

    assert levels(shares) == max(
        levels(d) for d in possible if all(n <= s * 12 for n, s in zip(d, served, strict=True))
    )


@pytest.mark.merge
@given(st.integers(0, 12), st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4)), max_size=4))
def test_shares_are_whole_gangs_and_no_gang_that_fits_is_refused(slots: int, raw: list[tuple[int, int]]) -> None:
    shares = gangs(slots, *((str(i), 1.0, cap, gang) for i, (cap, gang) in enumerate(raw)))
    left = slots - sum(shares.values())
    assert left >= 0
    for i, (cap, gang) in enumerate(raw):
        share = shares[str(i)]
        assert share % gang == 0
        assert share <= cap
        assert share + gang > cap or gang > left


ANYTHING = st.tuples(
    st.sampled_from([0.3, 0.5, 1.0, 2.0]),  # weight
    st.integers(0, 9),  # cap
    st.integers(1, 3),  # gang
    st.sampled_from([SMALL, BIG, GPU, SlotKind(2, 1)]),  # need
    st.tuples(*[st.integers(0, 3)] * 4),  # held
)


@pytest.mark.merge
@given(st.tuples(*[st.integers(0, 6)] * 4), st.lists(ANYTHING, min_size=1, max_size=6))
def test_it_divides_as_the_plain_version_does(
    amounts: tuple[int, ...], raw: list[tuple[float, int, int, SlotKind, tuple[int, ...]]]
) -> None:
    kinds = (*KINDS, SlotKind(4, 2))
    slots = {kind: amount for kind, amount in zip(kinds, amounts, strict=True) if amount}
    wants = [
        SlotRequest(
            Claim(str(i), weight, cap),
            gang,
            need,
            {kind: n for kind, n in zip(kinds, held, strict=True) if kind in slots},
        )
        for i, (weight, cap, gang, need, held) in enumerate(raw)
    ]
    division = divide(slots, wants)
    if division.plan is not None:
        assert division == divide_plainly(slots, wants)


class Counted(dict[SlotKind, int]):
    """The slots of an experiment, with a counter of the look-ups."""

    asked = 0

    def get(self, key: SlotKind, default: int = 0) -> int:  # type: ignore[override]
        Counted.asked += 1
        return super().get(key, default)


@pytest.mark.parametrize("gang", [1, 2])
def test_a_slot_costs_no_look_at_every_experiment(gang: int) -> None:
    slots, experiments = 1024, 256
    wants = [
        SlotRequest(Claim(str(i), 1.0 + i % 7, slots), gang if i % 3 else 1, GPU if i % 2 else SMALL, Counted())
        for i in range(experiments)
    ]
    Counted.asked = 0
    division = divide({SMALL: slots // 2, GPU: slots // 2}, wants)
    assert sum(division.shares.values()) >= slots - 1
    assert Counted.asked <= 10 * (slots + experiments)
