"""Tests of brackets against a naive implementation of the paper's algorithms."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard_policies.halving.bracket import Bracket, SynchronousBracket
from tests.unit.policies.algorithm2 import Naive

pytestmark = pytest.mark.quick

LOSSES = st.one_of(st.integers(0, 5).map(float), st.sampled_from([math.nan, math.inf, -math.inf]), st.floats())


@pytest.mark.merge
@given(
    eta=st.integers(2, 5),
    rungs=st.integers(1, 5),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 30), LOSSES), max_size=150),
)
def test_promotions_are_those_of_algorithm_2(eta: int, rungs: int, steps: list[tuple[bool, int, float]]) -> None:
    """Check with random orders of requests and reports, including several reports at once, equal losses, and NaN."""
    bracket, naive = Bracket(eta, rungs), Naive(eta, rungs)
    busy: list[tuple[str, int]] = []
    made = 0
    for asks, which, loss in steps:
        assert list(bracket.promotable()) == naive.all_promotable()
        if asks or not busy:
            expected = naive.get_job()
            if expected is None:
                made += 1
                bracket.add(str(made))
                busy.append((str(made), 0))
            else:
                assert next(bracket.promotable()) == expected
                bracket.promote(*expected)
                busy.append((expected[0], expected[1] + 1))
        else:
            job, rung = busy.pop(which % len(busy))
            assert bracket.heading(job) == rung
            bracket.report(job, loss, loss)
            naive.report(job, rung, loss)
    assert [sorted(rung.awaited) for rung in bracket.rungs] == [
        sorted(job for job, at in busy if at == number) for number in range(rungs)
    ]
    assert bracket.size == made


@pytest.mark.merge
@given(
    eta=st.integers(2, 4),
    rungs=st.integers(1, 4),
    losses=st.lists(LOSSES, min_size=1, max_size=70),
    chance=st.integers(0, 2**32),
)
def test_synchronous_promotions_are_those_of_algorithm_1(
    eta: int, rungs: int, losses: list[float], chance: int
) -> None:
    """Check that the best floor(n / eta^k) of a rung are promoted when all have reported, for any order of reports."""
    rng = random.Random(chance)
    bracket = SynchronousBracket(eta, rungs, len(losses))
    jobs = [str(number) for number in range(len(losses))]
    for job in jobs:
        assert bracket.decide() is None
        bracket.add(job)
    n, ended = len(jobs), 0
    for rung in range(rungs):
        rng.shuffle(jobs)
        when = {job: number for number, job in enumerate(jobs)}
        for job in jobs:
            assert bracket.decide() is None
            bracket.report(job, losses[int(job)], losses[int(job)])
        decision = bracket.decide()
        assert decision is not None
        finite = [job for job in jobs if math.isfinite(losses[int(job)])]
        places = 0 if rung == rungs - 1 else n // eta ** (rung + 1)
        best = sorted(finite, key=lambda job: (losses[int(job)], when[job]))[:places]
        winners, losers = decision
        assert winners == best
        assert sorted(winners + losers) == sorted(jobs)
        jobs, n_left = winners, len(winners)
        ended += len(losers)
        if n_left < places:  # Some losses were not finite, so fewer are promoted.
            break
    else:
        assert bracket.decided
        assert ended == len(losses)


def test_a_bracket_that_gets_fewer_is_decided_with_these() -> None:
    bracket = SynchronousBracket(2, 2, 4)
    for job in "ab":
        bracket.add(job)
        bracket.report(job, 1.0, 1.0)
    assert bracket.decide() is None
    bracket.narrow()
    assert bracket.decide() == (["a"], ["b"])


def test_a_rung_does_not_wait_for_who_was_set_aside_and_that_one_comes_too_late() -> None:
    bracket = SynchronousBracket(2, 2, 4)
    for job in "abcd":
        bracket.add(job)
    bracket.report("a", 3.0, 3.0)
    bracket.report("b", 2.0, 2.0)
    bracket.report("d", 4.0, 4.0)
    assert bracket.decide() is None
    bracket.set_aside("c")
    assert bracket.decide() == (["b", "a"], ["d"]), "of four two go on"
    bracket.report("c", 0.0, 0.0)
    assert not bracket.decided
    assert bracket.decide() == ([], ["c"])


def test_who_stands_at_an_old_top_rung_goes_on_when_there_are_more_rungs() -> None:
    asynchronous, synchronous = Bracket(2, 1), SynchronousBracket(2, 1, 2)
    for bracket in (asynchronous, synchronous):
        for job, loss in (("a", 2.0), ("b", 1.0)):
            bracket.add(job)
            bracket.report(job, loss, loss)
    assert synchronous.decide() == ([], ["b", "a"])
    assert synchronous.decided
    for bracket in (asynchronous, synchronous):
        bracket.heighten(2)
    assert list(asynchronous.promotable()) == [("b", 0)]
    assert synchronous.decide() == (["b"], ["a"])


def test_who_can_never_go_on_keeps_its_place() -> None:
    bracket = Bracket(2, 2)
    for job, loss in (("a", 1.0), ("b", 2.0)):
        bracket.add(job)
        bracket.report(job, loss, loss)
    bracket.give_up("a", 0)
    assert not list(bracket.promotable())


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_counts_as_a_result_and_never_goes_on(bad: float) -> None:
    bracket = Bracket(2, 2)
    for job, loss in (("a", bad), ("b", bad), ("c", bad), ("d", 9.0)):
        bracket.add(job)
        bracket.report(job, loss, loss)
    assert list(bracket.promotable()) == [("d", 0)]
    bracket.promote("d", 0)
    assert not list(bracket.promotable())


def test_a_bracket_becomes_wider_until_its_bottom_rung_is_decided() -> None:
    bracket = SynchronousBracket(2, 2, width=2)
    for job in "ab":
        bracket.add(job)
    bracket.report("a", 1.0, 1.0)
    bracket.widen(3)
    bracket.report("b", 2.0, 2.0)
    assert bracket.decide() is None
    bracket.add("c")
    bracket.report("c", 3.0, 3.0)
    assert bracket.decide() == (["a"], ["b", "c"])
    bracket.widen(4)
    assert bracket.width == 3
