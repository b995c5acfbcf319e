"""Tests of the search plan and the stage tree, with examples computed by hand and by brute force."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopyard_policies.stage_tree.plan import PlannedTrial, SearchPlan
from hopyard_policies.stage_tree.prefix_equality import BySequences, NoSharing
from hopyard_policies.stage_tree.tree import Request, RunningTrial, Stage, StageTree

from .searches import prefix, random_space, steps

pytestmark = pytest.mark.quick

Spans = set[tuple[str, int, int]]


def plan_of(configurations: Mapping[str, Mapping[str, object]], limit: int, shared: bool = True) -> SearchPlan:
    plan = SearchPlan(BySequences() if shared else NoSharing())
    for name, configuration in configurations.items():
        plan.add(PlannedTrial(name, ((limit, configuration),)))
    return plan


def tree_of(
    plan: SearchPlan,
    requests: Iterable[Request],
    runs: Iterable[RunningTrial] = (),
    saved: Iterable[tuple[str, int]] = (),
) -> StageTree:
    there = set(saved)
    for trial, position in there:
        plan.saved(trial, position)
    return StageTree(plan, requests, {run.trial: run for run in runs}, lambda *who: who in there, lambda _: 1.0)


def spans(stages: Iterable[Stage]) -> Spans:
    """Return each stage as (a trial that contains its end, start position, end position)."""
    return {(stage.end.node.member, stage.start.position, stage.end.position) for stage in stages}


# Figure 3 of Hippo: learning rate 0.1 for 200 steps, then 0.01; and three trials that differ after 100 and after 200 steps.
FIGURE_3 = {
    "1": {"lr": steps([200], [0.1, 0.01])},
    "2": {"lr": steps([100, 200], [0.1, 0.05, 0.01])},
    "3": {"lr": steps([100, 200], [0.1, 0.05, 0.02])},
    "4": {"lr": steps([100], [0.1, 0.02])},
}


def test_the_paper_s_four_trials_make_its_figure_4() -> None:
    tree = tree_of(plan_of(FIGURE_3, 300), [(trial, 300) for trial in FIGURE_3])
    assert spans(tree.stages()) == {
        ("1", 0, 100),
        ("1", 100, 300),
        ("2", 100, 200),
        ("2", 200, 300),
        ("3", 200, 300),
        ("4", 100, 300),
    }
    assert [stage.start.position for stage in tree.ready()] == [0]


def test_a_fifth_trial_splits_a_stage_as_in_figure_5() -> None:
    plan = plan_of(FIGURE_3, 300)
    plan.add(PlannedTrial("5", ((300, {"lr": steps([150], [0.1, 0.03])}),)))
    found = spans(tree_of(plan, [(trial, 300) for trial in (*FIGURE_3, "5")]).stages())
    assert {("1", 100, 150), ("1", 150, 300), ("5", 150, 300)} <= found
    assert ("1", 100, 300) not in found


def test_requests_of_one_configuration_follow_one_another() -> None:
    """Check the first correction of the paper's algorithm, which starts both requests from 0."""
    tree = tree_of(plan_of({"a": {"lr": 0.1}}, 40), [("a", 15), ("a", 35)])
    assert spans(tree.stages()) == {("a", 0, 15), ("a", 15, 35)}


def test_what_is_saved_waits_for_no_running_stage() -> None:
    """Check the second correction of the paper's algorithm, which skips a request while its configuration runs anywhere."""
    plan = plan_of({"a": {"lr": 0.1}, "b": {"lr": steps([15], [0.1, 0.2])}}, 40)
    tree = tree_of(plan, [("b", 40)], [RunningTrial("a", 20, 35)], [("a", 15)])
    (stage,) = tree.ready()
    assert (stage.start.position, stage.end.position, stage.start.save) == (15, 40, "a")


def test_a_request_within_a_running_stage_is_a_save_point_of_it() -> None:
    """Check the third correction of the paper's algorithm, which has no save points within a running stage."""
    plan = plan_of({"a": {"lr": 0.1}, "b": {"lr": steps([30], [0.1, 0.2])}}, 40)
    tree = tree_of(plan, [("a", 40), ("b", 40)], [RunningTrial("a", 20, 40)])
    assert tree.ready() == []
    (root,) = tree.roots()
    assert (root.run, root.position, spans(tree.stages())) == ("a", 30, {("b", 30, 40)})


def test_a_branch_point_that_was_passed_is_trained_again_from_the_last_snapshot() -> None:
    plan = plan_of({"a": {"lr": 0.1}, "b": {"lr": steps([18], [0.1, 0.2])}}, 40)
    tree = tree_of(plan, [("b", 40)], [RunningTrial("a", 20, 35)], [("a", 15)])
    assert spans(tree.ready()) == {("b", 15, 40)}


def test_a_run_that_is_saving_a_branch_point_is_waited_for() -> None:
    plan = plan_of({"a": {"lr": 0.1}, "b": {"lr": steps([20], [0.1, 0.2])}}, 40)
    assert tree_of(plan, [("b", 40)], [RunningTrial("a", 20, 35, saving=True)]).ready() == []
    assert spans(tree_of(plan, [("b", 40)], [RunningTrial("a", 20, 35)]).ready()) == {("b", 0, 40)}


def test_snapshots_that_are_gone_are_forgotten() -> None:
    plan = plan_of({"a": {"lr": 0.1}}, 40)
    plan.saved("a", 15)
    plan.saved("a", 25)
    assert spans(tree_of(plan, [("a", 40)], saved=[("a", 15)]).ready()) == {("a", 15, 40)}


def test_levels_are_critical_paths() -> None:
    tree = tree_of(plan_of(FIGURE_3, 300), [("1", 300), ("4", 150)])
    (stage,) = tree.ready()
    assert tree.length_of(stage) == 300
    assert {tree.length_of(each) for each in tree.stages()} == {300.0, 200.0, 50.0}


def test_trials_that_share_nothing_make_a_stage_each() -> None:
    tree = tree_of(plan_of(FIGURE_3, 300, shared=False), [(trial, 300) for trial in FIGURE_3])
    assert spans(tree.stages()) == {(trial, 0, 300) for trial in FIGURE_3}


def test_families_share_nothing() -> None:
    plan = SearchPlan(BySequences())
    plan.add(PlannedTrial("a", ((9, {"lr": 0.1}),), "one"))
    plan.add(PlannedTrial("b", ((9, {"lr": 0.1}),), "other"))
    assert plan.common("a", "b") == 0


def test_a_fork_shares_its_parent_s_beginning_and_nothing_behind() -> None:
    plan = SearchPlan(BySequences())
    parent = PlannedTrial("a", ((9, {"lr": 0.1}),))
    plan.add(parent)
    plan.add(parent.forked("b", 4, {"lr": 0.2}, 9))
    plan.add(PlannedTrial("c", ((9, {"lr": 0.2}),)))
    assert (plan.common("a", "b"), plan.common("b", "c")) == (4, 0)


@pytest.mark.parametrize("limits", [(5, 9), (9, 5)])
def test_a_shorter_trial_ends_on_the_way(limits: tuple[int, int]) -> None:
    plan = SearchPlan(BySequences())
    for name, limit in zip("ab", limits, strict=True):
        plan.add(PlannedTrial(name, ((limit, {"lr": 0.1}),)))
    assert plan.common("a", "b") == 5
    tree = tree_of(plan, [("a", limits[0]), ("b", limits[1])])
    assert sorted((s.start.position, s.end.position) for s in tree.stages()) == [(0, 5), (5, 9)]


@pytest.mark.merge
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(2, 12))
def test_common_beginnings_agree_with_brute_force(seed: int, trials: int, length: int) -> None:
    space = random_space(random.Random(seed), trials, length)
    plan = plan_of({str(n): each for n, each in enumerate(space)}, length)
    for one in range(trials):
        for other in range(trials):
            same = max(p for p in range(length + 1) if prefix(space[one], p) == prefix(space[other], p))
            assert plan.common(str(one), str(other)) == same


@pytest.mark.merge
@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(2, 12))
def test_stages_are_what_is_missing_each_position_once(seed: int, trials: int, length: int) -> None:
    """Check random requests, snapshots and runs against brute force over (position, prefix)."""
    rng = random.Random(seed)
    space = random_space(rng, trials, length)
    plan = plan_of({str(n): each for n, each in enumerate(space)}, length)
    requests = {(str(rng.randrange(trials)), rng.randint(1, length)) for _ in range(rng.randint(1, trials + 2))}
    saved = {(str(rng.randrange(trials)), rng.randint(1, length)) for _ in range(rng.randint(0, 4))}
    runs = []
    for trial in sorted({str(rng.randrange(trials)) for _ in range(rng.randint(0, 3))}):
        begin = rng.randint(0, length - 1)
        runs.append(RunningTrial(trial, begin, rng.randint(begin + 1, length)))
    tree = tree_of(plan, requests, runs, saved)

    def state(trial: str, position: int) -> object:
        return (position, prefix(space[int(trial)], position))

    there = {state(*each) for each in saved} | {state("0", 0)}
    coming = {state(run.trial, p) for run in runs for p in range(run.position + 1, run.until + 1)}
    missing = set()
    for trial, position in requests:
        while state(trial, position) not in there | coming:
            missing.add(state(trial, position))
            position -= 1
    trained = [
        state(stage.end.node.member, p)
        for stage in tree.stages()
        for p in range(stage.start.position + 1, stage.end.position + 1)
    ]
    assert len(trained) == len(set(trained))
    assert set(trained) == missing
    for stage in tree.ready():
        assert state(stage.end.node.member, stage.start.position) in there


@pytest.mark.merge
@given(st.data())
def test_a_place_is_found_as_if_all_trials_were_compared(data: st.DataObject) -> None:
    """Check that finding children by their values builds the same tree as comparing a trial with each child."""
    sameness = BySequences()
    plan = SearchPlan(sameness)
    value = st.sampled_from([0.1, 0.2, 1, 1.0, True])
    written = st.lists(value, min_size=3, max_size=3).map(
        lambda values: {"sequence": {"multi_step": {"milestones": [2, 4], "values": values}}}
    )
    configurations = data.draw(st.lists(st.fixed_dictionaries({"lr": written, "m": value}), min_size=2, max_size=8))
    for number, configuration in enumerate(configurations):
        plan.add(PlannedTrial(str(number), ((data.draw(st.integers(1, 6)), configuration),)))
    for one, mine in enumerate(configurations):
        for other, theirs in enumerate(configurations):
            most = min(plan[str(one)].limit, plan[str(other)].limit)
            assert plan.common(str(one), str(other)) == sameness(mine, theirs, most)
