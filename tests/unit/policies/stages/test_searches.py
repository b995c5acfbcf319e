"""Tests of whole simulated searches: common prefixes are trained once, with all tuners, slots and costs."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopyard.policy.testing import UpCallView, VirtualCluster
from hopyard.sequences.prefix_tree import PrefixTree, Request
from hopyard_policies.halving.sha import ShaPolicy
from hopyard_policies.stage_tree.cost_model import CostModel
from hopyard_policies.stage_tree.policy import StageTreePolicy
from hopyard_simulator import Costs, Faults

from .searches import Search, prefix, random_space, search, steps, value

pytestmark = pytest.mark.quick

TUNERS: tuple[dict[str, Any], ...] = (
    {"name": "sha", "eta": 2, "r": 1},
    {"name": "asha", "eta": 2, "r": 1},
    {"name": "hyperband", "eta": 2},
    {"name": "median"},
    {"name": "bandit", "evaluation_boundary": 2},
    {"name": "default", "barrier": True},
)

ENDS = ("all jobs ended", "the policy has nothing left to do")  # asha does not end jobs that it does not promote.


def simulated(seed: int, faults: Faults | None = None, **parameters: Any) -> Search:
    """Simulate a search of a random space, with random numbers of slots and costs."""
    rng = random.Random(seed)
    trials, length = rng.randint(1, 12), rng.choice((4, 8, 16))
    costs = Costs(
        start=rng.choice((0, 0.5)),
        resume=rng.choice((0, 0.02, 1)),
        snapshot=rng.choice((0, 0.01, 0.3)),
        suspend=rng.choice((0, 0.1)),
        latency=rng.choice((0, 0.05, 0.6)),
    )
    space = random_space(rng, trials, length)
    return search(space, length, slots=rng.randint(1, 8), costs=costs, faults=faults, seed=seed, **parameters)


@pytest.mark.merge
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_a_grid_trains_each_state_once_and_all_of_them(seed: int) -> None:
    found = simulated(seed)
    assert found.result.reason == "all jobs ended"
    assert found.trained == found.whole
    assert found.result.iterations == len(found.whole)


@pytest.mark.merge
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 6))
def test_without_room_for_all_snapshots_some_states_are_trained_again_and_all_are_trained(seed: int, room: int) -> None:
    found = simulated(seed, snapshot_quota=room)
    assert found.result.reason == "all jobs ended"
    assert found.trained == found.whole
    assert found.result.iterations >= len(found.whole)


@pytest.mark.merge
def test_the_more_room_the_less_is_trained_again() -> None:
    """Check with three trials that leave a fourth at 4, 8 and 12 of 16: more retained snapshots mean less repeated training."""
    space = [{"lr": steps([at], [0.1, 0.2])} for at in (4, 8, 12)] + [{"lr": 0.1}]
    trained = [search(space, 16, slots=1, snapshot_quota=room).result.iterations for room in (1, 2, 3, 100)]
    assert trained == sorted(trained, reverse=True)
    assert trained[0] > trained[-1] == 16 + 12 + 8 + 4


@pytest.mark.merge
@pytest.mark.parametrize("tuner", TUNERS, ids=lambda tuner: str(tuner["name"]))
def test_under_a_tuner_no_state_is_trained_twice(tuner: dict[str, Any]) -> None:
    for seed in range(8):
        found = simulated(seed, tuner=tuner)
        assert found.result.iterations == len(found.trained), f"seed {seed}"
        assert found.trained <= found.whole


@pytest.mark.merge
@pytest.mark.parametrize("tuner", TUNERS, ids=lambda tuner: str(tuner["name"]))
@pytest.mark.parametrize("every", [3, 7])
def test_reports_that_do_not_fall_on_what_is_wanted_serve_all_the_same(tuner: dict[str, Any], every: int) -> None:
    """Check with rungs at 1, 2, 4, ... and any branch points, while programs report only every third or seventh position."""
    for seed in range(8):
        found = simulated(seed, tuner=tuner, every=every)
        assert found.result.reason in ENDS, f"seed {seed}"


def test_sha_decides_on_a_stage_tree_as_alone_where_reports_do_not_fall_on_rungs() -> None:
    """Check with trials that differ from reported positions on: all common prefixes are shared, and rungs have the same results."""
    marks = ((6, 12), (6, 18), (12,), (18,), (6,))
    space = [{"lr": steps(at, [0.1, *(n + i for i in range(len(at)))])} for n in (1, 2) for at in marks]
    shared = search(space, 24, slots=4, every=6, tuner={"name": "sha", "eta": 3, "r": 4})
    alone = search(space, 24, slots=4, every=6, policy=ShaPolicy, eta=3, r=4)
    assert shared.result.iterations == len(shared.trained) < alone.result.iterations
    assert shared.trained == alone.trained
    assert shared.result.best == alone.result.best


@pytest.mark.parametrize("tuner", [*TUNERS, {"name": "default"}], ids=lambda tuner: str(tuner["name"]))
@pytest.mark.parametrize("width", [1, None])
def test_tuners_hear_of_reports_beyond_the_end(tuner: dict[str, Any], width: int | None) -> None:
    """Check with a program that must end at 1 but reports at 3: whatever waits for its slot or result gets it then."""
    space = [{"lr": 0.1 * n} for n in (1, 2, 3, 3)]
    found = search(space, 1, slots=2, every=3, passes=True, tuner=tuner, width=width)
    assert found.result.reason == "all jobs ended"
    assert found.trained == {(3, prefix(one, 3)) for one in space}


@pytest.mark.parametrize("slots", [1, 3, 8])
def test_trials_that_are_equal_up_to_a_rung_are_promoted_together(slots: int) -> None:
    space = [{"lr": steps([3], [first, then])} for then in (1.0, 2.0) for first in (0.1, 0.2, 0.3, 0.4)]
    found = search(space, 8, slots=slots, tuner={"name": "sha", "eta": 2, "r": 2})
    ranked = sorted(space[:4], key=lambda one: -value(one, 2))
    promoted = [one for one in space if (4, prefix(one, 4)) in found.trained]
    assert sorted(space.index(one) % 4 for one in promoted) == sorted(2 * [space.index(one) for one in ranked[:2]])
    assert found.result.iterations == len(found.trained)


def test_a_width_beyond_all_bounds_stands_for_all() -> None:
    space = random_space(random.Random(5), 6, 8)
    found, all_of_them = (search(space, 8, slots=2, tuner="asha", width=width) for width in (10**7, None))
    assert (found.result.curves, found.result.time) == (all_of_them.result.curves, all_of_them.result.time)


def test_not_shared_trains_every_trial_alone() -> None:
    space = [{"lr": steps([3], [0.1, n])} for n in range(5)]
    assert search(space, 6, slots=2, share=False).result.iterations == 5 * 6
    assert search(space, 6, slots=2).result.iterations == 3 + 5 * 3


@pytest.mark.merge
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.02, 0.1]))
def test_lost_runs_cost_what_they_had_not_saved(seed: int, drop: float) -> None:
    """Check that each trial completes and that only positions after the last snapshot of a lost run are repeated."""
    found = simulated(seed, Faults(drop=drop), max_losses=1000)
    assert found.result.reason == "all jobs ended"
    assert found.trained == found.whole
    assert found.result.runs is not None
    lost = sum(run.trained for run in found.result.runs if run.reason == "LOST")
    assert len(found.whole) <= found.result.iterations <= len(found.whole) + lost


@pytest.mark.merge
def test_lost_nodes_are_no_end() -> None:
    faults = Faults(node_failures=0.01, downtime=5)
    for seed in range(5):
        found = simulated(seed, faults, max_losses=1000)
        assert found.trained == found.whole, f"seed {seed}"


@pytest.mark.merge
def test_trials_that_come_later_train_again_what_was_passed_unsaved_and_less_with_more_snapshots() -> None:
    """Check with two trials at a time, whose runs pass branch points of trials that do not exist yet."""
    space = [{"lr": steps([15 - n], [0.1, n])} for n in range(6)]
    again = {}
    for every in (None, 4, 1):
        found = search(space, 16, slots=1, width=2, save_every=every)
        assert found.trained == found.whole
        again[every] = found.result.iterations - len(found.whole)
    assert again[None] > again[4] > again[1] == 0
    assert again[4] <= 3 * len(space)


@pytest.mark.merge
def test_the_level_rule_comes_near_the_bound_where_tails_are_long() -> None:
    """Check six branches of 20 s on four slots, which take 30 s at the least, and 40 s without a change of runs."""
    space = [{"lr": steps([1], [0.1, n])} for n in range(6)]
    found = search(space, 21, slots=4, costs=Costs(snapshot=0.01, resume=0.01))
    assert 31 <= found.result.time <= 1.06 * 31


class Timed(NamedTuple):
    """The virtual time of a search with free snapshots and starts, and the optimum: the bound that Hu's level rule reaches."""

    time: float
    optimum: int


def timed(seed: int) -> Timed:
    """Simulate a random grid: 2 to 8 trials of 5 to 15 units, 1 second each, on 1 to 4 slots."""
    rng = random.Random(seed)
    trials, length, slots = rng.randint(2, 8), rng.randint(5, 15), rng.randint(1, 4)
    space = random_space(rng, trials, length)
    optimum = PrefixTree(Request(configuration, length) for configuration in space).makespan_lower_bound(slots)
    return Timed(search(space, length, slots=slots).result.time, optimum)


LONGER = {
    3: Timed(18, 16),
    9: Timed(27, 22),
    17: Timed(22, 21),
    27: Timed(21, 20),
    51: Timed(17, 15),
    53: Timed(15, 12),
}
"""The searches, of the seeds 0 to 59, that take longer than the optimum."""


@pytest.mark.merge
def test_with_free_snapshots_54_of_60_searches_take_the_optimal_time() -> None:
    found = {seed: timed(seed) for seed in range(60)}
    assert {seed: one for seed, one in found.items() if one.time != one.optimum} == LONGER
    assert max(one.time / one.optimum for one in LONGER.values()) == 1.25


@pytest.mark.parametrize("seed", LONGER)
def test_searches_take_longer_than_the_optimum_because_no_run_is_shortened_before_its_cost_is_known(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CostModel, "tells_costs", True)
    one = timed(seed)
    assert one.time == one.optimum


def test_runs_that_began_when_there_was_room_give_way_when_there_is_none() -> None:
    """Check five trials of 15 positions, of which one branches at 5.

    Hu's bound is 17; it takes 20 if the four others run without suspension.
    """
    space = [{"lr": steps([5], [0.1, then])} for then in (1.0, 2.0)] + [{"lr": rate} for rate in (2, 3, 4, 5)]
    found = search(space, 15, slots=5, costs=Costs(resume=0.01, snapshot=0.01))
    assert found.result.iterations == len(found.whole)
    assert found.result.time < 17.5


@pytest.mark.merge
def test_the_dearer_snapshots_are_the_longer_runs_go_on() -> None:
    space = [{"lr": steps([1], [0.1, n])} for n in range(6)]
    runs = {}
    for cost in (0.01, 1, 10):
        found = search(space, 21, slots=4, costs=Costs(snapshot=cost, resume=cost, start=cost))
        assert found.result.runs is not None
        runs[cost] = len(found.result.runs)
    assert runs[0.01] > runs[1] > runs[10]
    assert runs[10] <= 1.5 * len(space)


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"tuner": "stage_tree"}, "tuner is stage_tree itself"),
        ({"tuner": {"eta": 3}}, "it must be a policy's name"),
        ({"tuner": {"name": "default", "pace": 3}}, "tuner default"),
        ({"tuner": {"name": "pbt", "population": 1}}, "tuner pbt: population is 1"),
        ({"share": 1}, "share is 1"),
        ({"width": 0}, "width is 0"),
        ({"tuner": "remote:x"}, "tuner is 'remote:x'; .* one of the scheduler's own Python"),
        ({"save_every": True}, "save_every is True"),
    ],
)
def test_wrong_parameters_are_refused_with_what_is_allowed(given_: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StageTreePolicy(**given_)


def test_the_rungs_of_a_stage_tree_are_its_tuners() -> None:
    policy = StageTreePolicy(tuner={"name": "sha", "eta": 2})
    cluster = VirtualCluster(policy, slots=2, jobs=4, max_position=4)
    cluster.run()
    last = cluster.history[-1]
    rungs = policy.rungs(UpCallView(last.moment, last.call))
    assert rungs is not None
    assert [(rung.position, len(rung.standings)) for rung in rungs] == [(1, 4), (2, 2), (4, 1)]
    assert StageTreePolicy().rungs(UpCallView(last.moment, last.call)) is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"Eta": 3}, r"tuner asha has no parameter Eta; it takes: .*; did you mean eta\?"),
        ({"eta": 1}, "tuner asha: eta is 1; it must be a whole number of at least 2"),
    ],
)
def test_what_is_wrong_with_a_tuners_parameters_is_said_of_the_tuner(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        StageTreePolicy(tuner={"name": "asha", **given})


def test_a_tuner_brings_its_generator() -> None:
    """Check that the tuner `bohb` selects the generator `tpe`, and that `sha` keeps the default generator."""
    assert StageTreePolicy(tuner="bohb").generator == "tpe"
    assert StageTreePolicy(tuner={"name": "bohb", "eta": 3}).generator == "tpe"
    assert StageTreePolicy(tuner="sha").generator == StageTreePolicy().generator == ""
