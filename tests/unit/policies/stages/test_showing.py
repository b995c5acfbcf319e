"""Tests of the stage tree as displayed to users, checked at every up-call of simulated searches."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import pytest
from typing_extensions import override

from hopyard.policy import Cluster, Decision, IterationFinish, JobCreated, StageState, StageView
from hopyard_policies.stage_tree.policy import StageTreePolicy
from hopyard_simulator import Costs, Faults

from .searches import random_space, search, steps

pytestmark = pytest.mark.quick

SPACE = [{"lr": steps([4], [1, n])} for n in (2, 3, 4)]


class Watched(StageTreePolicy):
    """A policy that records its displayed stages after each up-call."""

    seen: ClassVar[list[tuple[StageView, ...]]] = []

    @override
    def allocate_jobs(self, cluster: Cluster) -> None:
        super().allocate_jobs(cluster)
        self._watch(cluster)

    @override
    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        decision = super().on_iteration_finish(cluster, event)
        self._watch(cluster)
        return decision

    @override
    def on_run_end(self, cluster: Cluster, run: Any) -> None:
        super().on_run_end(cluster, run)
        self._watch(cluster)

    @override
    def on_job_created(self, cluster: Cluster, created: JobCreated) -> None:
        super().on_job_created(cluster, created)
        self._watch(cluster)

    def _watch(self, cluster: Cluster) -> None:
        stages = self.stages(cluster)
        self.seen.append(stages)
        well_formed(stages, {job.id: job.max_position for job in cluster.jobs.values() if job.hyperparameters})
        running = {stage.by for stage in stages if stage.state is StageState.RUNNING}
        assert running <= {job.id for job in cluster.live_jobs()} | set(self._books.runs)


def well_formed(stages: tuple[StageView, ...], lengths: dict[str, int]) -> None:
    """Assert that the stages of each trial are contiguous from 0 to its end, and that parents precede children."""
    by_number = {stage.number: stage for stage in stages}
    assert list(by_number) == list(range(1, len(stages) + 1))
    for stage in stages:
        before = by_number[stage.parent] if stage.parent is not None else None
        assert (before.end if before is not None else 0) == stage.start < stage.end
        assert before is None or (before.number < stage.number and set(stage.trials) <= set(before.trials))
        assert stage.reused < len(stage.trials)
        if stage.state is StageState.DONE and before is not None:
            assert before.state in (StageState.DONE, StageState.RUNNING)
    for trial, length in lengths.items():
        if any(trial in stage.trials for stage in stages):
            own = sorted((stage.start, stage.end) for stage in stages if trial in stage.trials)
            assert [start for start, _ in own] == [0, *(end for _, end in own[:-1])]
            assert own[-1][1] == length
            assert [stage.end for stage in stages if trial in stage.ends] == [length]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Watched.seen.clear()


def standing(stages: tuple[StageView, ...]) -> list[tuple[int, int, str, str]]:
    return [(stage.start, stage.end, stage.state.value, ",".join(stage.trials)) for stage in stages]


def test_a_grid_is_shown_from_its_first_run_to_its_end() -> None:
    found = search(SPACE, 8, slots=1, policy=Watched, costs=Costs(start=1))
    assert found.result.iterations == 4 + 3 * 4
    under_way = [
        (0, 4, "done", "1,2,3"),
        (4, 8, "running", "1"),
        (4, 8, "waiting", "2"),
        (4, 8, "waiting", "3"),
    ]
    assert [(0, 8, "waiting", "1")] in [standing(stages) for stages in Watched.seen]
    assert under_way in [standing(stages) for stages in Watched.seen]
    last = Watched.seen[-1]
    assert [(start, end, state) for start, end, state, _ in standing(last)] == [
        (0, 4, "done"),
        (4, 8, "done"),
        (4, 8, "done"),
        (4, 8, "done"),
    ]
    assert [stage.reused for stage in last] == [2, 0, 0, 0]
    assert [stage.ends for stage in last] == [(), ("1",), ("2",), ("3",)]
    assert all(stage.seconds == pytest.approx(4) for stage in last)
    assert all(stage.slot for stage in last)


def test_what_a_trial_trained_again_is_not_reused() -> None:
    class Again(Watched):
        """A policy that shows its last state as if trial 2 had found no snapshot to start from."""

        @override
        def on_run_end(self, cluster: Cluster, run: Any) -> None:
            super().on_run_end(cluster, run)
            spans.update(self._books.trained)
            self._books.trained["2"] = [(0, 8)]
            reused.append([stage.reused for stage in self.stages(cluster)])

    spans: dict[str, list[tuple[int, int]]] = {}
    reused: list[list[int]] = []
    search(SPACE, 8, slots=1, policy=Again, costs=Costs(start=1))
    assert (spans["1"], spans["3"]) == ([(0, 8)], [(4, 8)])
    assert reused[-1] == [1, 0, 0, 0]


@pytest.mark.merge
@pytest.mark.parametrize(
    "tuner", ["default", {"name": "sha", "eta": 2, "r": 1}, {"name": "asha", "eta": 2, "r": 1}], ids=str
)
def test_what_is_shown_as_done_is_what_was_trained(tuner: Any) -> None:
    for seed in range(6):
        rng = random.Random(seed)
        space = random_space(rng, rng.randint(2, 10), 8)
        found = search(space, 8, slots=rng.randint(1, 4), policy=Watched, tuner=tuner, seed=seed)
        assert sum(stage.length for stage in Watched.seen[-1] if stage.state is StageState.DONE) == len(found.trained)
        assert not any(stage.state is StageState.RUNNING for stage in Watched.seen[-1])


def test_trials_that_a_tuner_has_dropped_are_not_wanted_any_further() -> None:
    search([{"lr": n} for n in range(4)], 8, slots=2, policy=Watched, tuner={"name": "sha", "eta": 2, "r": 2})
    stages = Watched.seen[-1]
    assert {stage.state for stage in stages} == {StageState.DONE, StageState.UNWANTED}
    unwanted = [(stage.start, stage.end) for stage in stages if stage.state is StageState.UNWANTED]
    assert sorted(unwanted) == [(2, 8), (2, 8), (4, 8)]


@pytest.mark.merge
def test_a_look_changes_no_decision() -> None:
    space = random_space(random.Random(3), 9, 8)
    faults = Faults(drop=0.05)
    for tuner in ("default", {"name": "asha", "eta": 2, "r": 1}):
        results = [
            search(space, 8, slots=3, policy=policy, tuner=tuner, faults=faults, seed=5, max_losses=1000).result
            for policy in (StageTreePolicy, Watched)
        ]
        assert results[0].runs == results[1].runs


def test_equal_trials_share_all_of_it() -> None:
    search([{"lr": 1}, {"lr": steps([2], [1, 1])}], 4, slots=2, policy=Watched)
    (stage,) = Watched.seen[-1]
    assert (stage.trials, stage.ends, stage.reused, stage.by) == (("1", "2"), ("1", "2"), 1, "1")


def test_before_anything_was_measured_no_time_is_told() -> None:
    search(SPACE, 8, slots=1, policy=Watched, costs=Costs(start=1))
    first = next(stages for stages in Watched.seen if stages)
    assert {stage.seconds for stage in first} == {None}
