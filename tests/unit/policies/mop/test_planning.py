"""Tests of the planners of `mop`: plans are valid and close to a lower bound of the time."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopyard_policies.mop.schedule.bounds import lower_bound, replica_bound
from hopyard_policies.mop.schedule.dispatch import PlanFollower, Randomized
from hopyard_policies.mop.schedule.estimates import Estimates
from hopyard_policies.mop.schedule.milp import solve
from hopyard_policies.mop.schedule.planning import SCHEDULERS, dispatcher, longest
from hopyard_policies.mop.schedule.problem import (
    InvalidScheduleError,
    ScheduledUnit,
    TrainingUnit,
    VisitProblem,
    VisitSchedule,
    check,
)
from hopyard_policies.mop.schedule.replanning import Online
from hopyard_policies.mop.schedule.replica_assignment import host
from hopyard_policies.mop.schedule.simulation import carry_out, carry_out_online

pytestmark = pytest.mark.quick

TIMES = st.floats(0.1, 10.0)


@st.composite
def problems(draw: st.DrawFn, most: int = 6) -> VisitProblem:
    """Generate planning problems, with and without replicas, at the start and in the middle of an epoch."""
    configs, partitions, slots = (draw(st.integers(1, most)) for _ in range(3))
    number = st.integers(0, slots - 1)
    least = draw(st.integers(0, 1))
    return VisitProblem(
        costs=draw(st.lists(TIMES, min_size=configs, max_size=configs)),
        sizes=draw(st.lists(TIMES, min_size=partitions, max_size=partitions)),
        speeds=draw(st.lists(TIMES, min_size=slots, max_size=slots)),
        holders=[sorted(draw(st.sets(number, min_size=least, max_size=3))) for _ in range(partitions)],
        done=[draw(st.frozensets(st.integers(0, partitions - 1))) for _ in range(configs)],
        config_free=draw(st.one_of(st.just(()), st.lists(TIMES, min_size=configs, max_size=configs))),
        slot_free=draw(st.one_of(st.just(()), st.lists(TIMES, min_size=slots, max_size=slots))),
    )


def taking(noise: Mapping[TrainingUnit, float], unit: TrainingUnit, slot: int) -> float:
    """Return the time of a unit, which is the same on all slots."""
    return noise[unit]


def square(configs: int, slots: int) -> VisitProblem:
    """Return a problem with equal configurations and equal slots, each with one partition."""
    return VisitProblem([1.0] * configs, [1.0] * slots, [1.0] * slots, [[m] for m in range(slots)])


@pytest.mark.merge
@settings(max_examples=40, deadline=None)
@given(problem=problems(), seed=st.integers(0, 9), name=st.sampled_from(["longest", "randomized"]))
def test_plans_keep_every_invariant_and_no_plan_beats_the_bound(problem: VisitProblem, seed: int, name: str) -> None:
    schedule = SCHEDULERS[name](problem, random.Random(seed))
    check(problem, schedule)
    assert schedule.complete
    assert schedule.makespan >= lower_bound(problem) * (1 - 1e-6)


@pytest.mark.merge
@settings(max_examples=40, deadline=None)
@given(problem=problems(), seed=st.integers(0, 9), learns=st.booleans(), data=st.data())
def test_nothing_is_lost_or_doubled_when_times_are_not_known_and_a_slot_dies(
    problem: VisitProblem, seed: int, learns: bool, data: st.DataObject
) -> None:
    chance = random.Random(seed)
    noise = {unit: chance.uniform(1.0, 1.5) for unit in problem.units}
    victim = data.draw(st.integers(0, len(problem.speeds) - 1))
    moment = data.draw(st.floats(0.1, 30.0))
    rule = Online(problem, dispatcher, Estimates() if learns else None)
    schedule = carry_out_online(problem, rule, lambda u, m: problem.time(*u, m) * noise[u], {victim: moment})
    trained = [placed.unit for placed in schedule.placed]
    assert len(set(trained)) == len(trained)
    left = set(problem.units).difference(trained)
    assert all(set(problem.holders[unit.partition]) == {victim} for unit in left)
    assert schedule.complete is not bool(left)
    assert all(placed.end <= moment for placed in schedule.placed if placed.slot == victim)
    kept = VisitProblem(
        problem.costs,
        problem.sizes,
        problem.speeds,
        problem.holders,
        [
            frozenset(range(len(problem.sizes))) - {u.partition for u in trained if u.config == c}
            for c in range(len(problem.costs))
        ],
        problem.config_free,
        problem.slot_free,
    )
    check(kept, schedule)


@pytest.mark.parametrize(("configs", "slots"), [(4, 4), (6, 6), (7, 7), (16, 16), (16, 8), (9, 4), (3, 5), (13, 12)])
def test_equal_units_are_planned_optimally(configs: int, slots: int) -> None:
    problem = square(configs, slots)
    assert longest(problem, random.Random(1)).makespan == pytest.approx(max(configs, slots))


def test_with_noise_a_plan_without_slack_is_followed_and_better_than_chance() -> None:
    problem = square(12, 12)
    chance = random.Random(3)
    ours = theirs = 0.0
    for seed in range(10):
        noise = {unit: chance.gauss(1.0, 0.1) for unit in problem.units}
        actual = partial(taking, noise)
        ours += carry_out_online(problem, Online(problem, dispatcher, Estimates()), actual).makespan
        by_chance = partial(Randomized, rng=random.Random(seed))
        theirs += carry_out_online(problem, Online(problem, by_chance), actual).makespan
    assert ours < theirs
    assert isinstance(dispatcher(problem), PlanFollower)


def test_the_bound_with_replicas_is_that_without_them_if_there_are_none() -> None:
    problem = VisitProblem([1.0, 2.0, 5.0], [1.0, 3.0], [2.0, 1.0], [[0], [1]], config_free=[0.0, 4.0, 0.0])
    assert replica_bound(problem) == pytest.approx(lower_bound(problem)) == pytest.approx(24.0)


def test_who_knows_of_a_death_has_the_rest_of_the_slots_to_do_the_work() -> None:
    problem = VisitProblem([1.0] * 6, [1.0, 1.0], [1.0, 1.0], [[0, 1], [0, 1]])
    assert replica_bound(problem) == pytest.approx(6.0)
    assert replica_bound(problem, {1: 2.0}) == pytest.approx(10.0)
    with pytest.raises(RuntimeError, match="the bound could not be computed"):
        replica_bound(VisitProblem([1.0] * 6, [1.0], [1.0, 1.0], [[1]]), {1: 2.0})


def test_units_with_replicas_are_spread_over_their_slots() -> None:
    problem = VisitProblem([1.0] * 30, [1.0, 1.0], [1.0, 2.0, 3.0], [[0, 1], [1, 2]])
    schedule = longest(problem, random.Random(0))
    check(problem, schedule)
    assert schedule.makespan <= 1.05 * replica_bound(problem)
    assert set(host(problem)) == {0, 1, 2}


@pytest.mark.merge
def test_the_exact_scheduler_finds_an_optimum() -> None:
    problem = VisitProblem([3.0, 2.0, 2.0, 1.0], [1.0] * 3, [1.0, 1.0, 2.0], [[0], [1], [2]])
    schedule = solve(problem, 20.0)
    check(problem, schedule)
    assert schedule.makespan == pytest.approx(lower_bound(problem))


def test_more_to_come_is_more_urgent() -> None:
    problem = VisitProblem([1.0, 1.0], [1.0], [1.0], [[0]], config_after=[0.0, 3.0])
    assert [placed.unit.config for placed in carry_out(problem, dispatcher(problem)).placed] == [1, 0]


def test_schedules_that_break_an_invariant_are_refused() -> None:
    problem = VisitProblem([1.0, 2.0], [1.0, 1.0], [1.0, 1.0], [[0], [1]])
    a, b, c, d = (TrainingUnit(config, partition) for config in (0, 1) for partition in (0, 1))
    good = [ScheduledUnit(a, 0, 0, 1), ScheduledUnit(b, 1, 2, 3), ScheduledUnit(c, 0, 2, 4), ScheduledUnit(d, 1, 4, 6)]
    check(problem, VisitSchedule(tuple(good)))
    wrong = {
        "trained 0 times": good[1:],
        "trained 2 times": [*good, ScheduledUnit(a, 0, 7, 8)],
        "does not hold": [ScheduledUnit(a, 1, 0, 1), *good[1:]],
        "too little": [*good[:3], ScheduledUnit(d, 1, 4, 5)],
        "slot 0 starts": [*good[:2], ScheduledUnit(c, 0, 0.5, 2.5), good[3]],
        "configuration 1 starts": [*good[:3], ScheduledUnit(d, 1, 3, 5)],
        "not to be trained": [*good, ScheduledUnit(TrainingUnit(5, 0), 0, 9, 10)],
    }
    for message, placed in wrong.items():
        with pytest.raises(InvalidScheduleError, match=message):
            check(problem, VisitSchedule(tuple(placed)))


@pytest.mark.merge
@settings(max_examples=40, deadline=None)
@given(problem=problems())
def test_with_known_times_the_rule_has_the_weights_of_the_best_perturbed_pass(problem: VisitProblem) -> None:
    assert (
        carry_out(problem, dispatcher(problem, known=True)).makespan <= carry_out(problem, dispatcher(problem)).makespan
    )


def test_estimates_tell_costs_from_speeds() -> None:
    estimates, costs, speeds = Estimates(), {"a": 1.0, "b": 4.0, "c": 2.0}, {"x": 1.0, "y": 2.0, "z": 0.5}
    for _ in range(4):
        for config, cost in costs.items():
            for slot, speed in speeds.items():
                estimates.learn(config, slot, 10.0, cost * 10.0 / speed)
    found, fast = estimates.of(costs, speeds)
    assert [cost / found[0] for cost in found] == pytest.approx([1, 4, 2], rel=0.05)
    assert [speed / fast[0] for speed in fast] == pytest.approx([1, 2, 0.5], rel=0.15)
    (unseen,), others = estimates.of(["new"], ["other"])
    assert unseen == pytest.approx(sum(found) / 3)
    assert others == [1.0]
