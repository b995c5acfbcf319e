"""Tests of the incremental stage tree: it equals a newly built one, and only changed branches are rebuilt."""

from __future__ import annotations

import gc
import random
import weakref
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopyard_policies.stage_tree import incremental_tree, policy
from hopyard_policies.stage_tree.cost_model import CostModel
from hopyard_policies.stage_tree.dispatch import Dispatch
from hopyard_policies.stage_tree.incremental_tree import Forest, Inputs, TreeBranch, in_order
from hopyard_policies.stage_tree.plan import PlannedTrial, SearchPlan
from hopyard_policies.stage_tree.prefix_equality import BySequences
from hopyard_policies.stage_tree.tree import RunningTrial, StageTree
from hopyard_simulator import Costs, CurveWorkload, JoiningExperiment, Result, simulate

from .searches import Configuration, random_space, steps, value

LENGTH = 10


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_all_branches_together_are_the_whole_tree_in_its_order(seed: int) -> None:
    rng = random.Random(seed)
    space = random_space(rng, rng.randint(1, 14), LENGTH)
    plan = SearchPlan(BySequences())
    for number, configuration in enumerate(space, 1):
        plan.add(PlannedTrial(str(number), ((LENGTH, configuration),)))
    names = [str(number) for number in range(1, len(space) + 1)]
    saved = {(name, rng.randint(1, LENGTH)) for name in rng.sample(names, rng.randint(0, len(names)))}
    for trial, position in sorted(saved):
        plan.saved(trial, position)
    wanted = [(name, rng.randint(1, LENGTH)) for name in names if rng.random() < 0.8]
    at = {name: rng.randint(0, LENGTH) for name in names if rng.random() < 0.3}
    runs = {name: RunningTrial(name, position, rng.randint(position, LENGTH)) for name, position in at.items()}
    times = CostModel()

    inputs: dict[int, Inputs] = {}
    for name in names:
        inputs.setdefault(plan.branch(name), Inputs()).open.append(name)
    for trial, until in wanted:
        inputs[plan.branch(trial)].virtual_runs.append((trial, until, until, "x"))
    for run in runs.values():
        inputs[plan.branch(run.trial)].runs.append(run)
    branches = Forest(plan).grow(inputs, lambda *who: who in saved, times)
    whole = StageTree(plan, wanted, runs, lambda *who: who in saved, times.unit)

    found = [
        (r.way, r.stage.start.position, r.stage.end.node, r.stage.end.position) for r in in_order(branches.values())
    ]
    assert found == [(whole.length_of(s), s.start.position, s.end.node, s.end.position) for s in whole.ready()]
    assert sum(branch.left for branch in branches.values()) == sum(stage.length for stage in whole.stages())
    for name in runs:
        assert branches[plan.branch(name)].tree.length_behind(name) == whole.length_behind(name)


def search(seed: int) -> Result:
    rng = random.Random(seed)
    spaces = [random_space(rng, rng.randint(1, 8), LENGTH) for _ in range(rng.randint(1, 3))]
    return simulate(
        CurveWorkload(value, spaces[0], LENGTH),
        "stage_tree",
        slots=rng.randint(1, 6),
        group=[JoiningExperiment(space, at=rng.uniform(0, 8)) for space in spaces[1:]],
        costs=Costs(snapshot=rng.choice((0, 0.1)), resume=rng.choice((0, 0.3))),
        parameters={"tuner": rng.choice(("default", "sha", "asha")), "save_every": rng.randint(1, 5)},
        details=True,
    )


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_a_search_goes_as_if_nothing_were_kept(seed: int) -> None:
    class Forgetful(Forest):
        def grow(self, *given: object) -> dict[int, TreeBranch]:
            self._known, self._open = {}, {}
            return super().grow(*given)  # type: ignore[arg-type]

    kept = search(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hopyard_policies.stage_tree.state.Forest", Forgetful)
        assert search(seed) == kept


def test_a_decision_makes_anew_what_has_changed_and_not_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check with twenty prefixes of two trials each on four slots: a decision rebuilds one or two branches."""
    made, grown = 0, 0

    class Counted(TreeBranch):
        def __init__(self, *given: object) -> None:
            nonlocal made
            made += 1
            super().__init__(*given)  # type: ignore[arg-type]

    class Counting(Forest):
        def grow(self, *given: object) -> dict[int, TreeBranch]:
            nonlocal grown
            found = super().grow(*given)  # type: ignore[arg-type]
            grown += len(found)
            return found

    monkeypatch.setattr(incremental_tree, "TreeBranch", Counted)
    monkeypatch.setattr("hopyard_policies.stage_tree.state.Forest", Counting)
    space: list[Configuration] = [{"lr": steps([part], [rate, 0.5])} for rate in range(1, 21) for part in (3, 5)]
    result = simulate(CurveWorkload(value, space, LENGTH), "stage_tree", slots=4)
    assert result.iterations == 20 * (LENGTH + LENGTH - 3)
    assert made < grown / 5


def test_reused_branches_keep_nothing_else_of_the_decisions_that_built_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each of n branches keeps the inputs of all n, and only the garbage collector, which runs rarely, frees them."""
    alive: list[weakref.ref[Any]] = []

    class Watched(Dispatch):
        def __init__(self, *given: object) -> None:
            super().__init__(*given)  # type: ignore[arg-type]
            assert sum(found() is not None for found in alive) <= 2
            alive.extend((weakref.ref(self), weakref.ref(self._cluster)))

    monkeypatch.setattr(policy, "Dispatch", Watched)
    space: list[Configuration] = [{"lr": steps([part], [rate, 0.5])} for rate in range(1, 21) for part in (3, 5)]
    gc.disable()
    try:
        simulate(CurveWorkload(value, space, LENGTH), "stage_tree", slots=4)
        assert len(alive) > 200
    finally:
        gc.enable()
