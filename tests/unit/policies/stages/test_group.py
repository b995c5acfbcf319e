"""Tests of a group on a stage tree: experiments train common prefixes once, and each decides by itself."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopyard.policy import ApplicationStat, Cluster, Verdict
from hopyard_policies.stage_tree.policy import StageTreePolicy
from hopyard_simulator import Costs, CurveWorkload, Faults, JoiningExperiment, Result, simulate

from .searches import Configuration, prefix, random_space, steps, value

pytestmark = pytest.mark.quick

LENGTH = 10
FIRST = ({"lr": steps([4], [0.1, 0.2])}, {"lr": steps([6], [0.1, 0.2])})
SECOND = ({"lr": steps([6], [0.1, 0.2])}, {"lr": steps([8], [0.1, 0.3])})
"""Two configurations: one equals the second of `FIRST`, the other has its values up to 6.

Alone, the two experiments train 16 and 14 positions; together, they train 20.
"""

A, B = "simulation", "simulation-2"


def group(*others: JoiningExperiment, slots: int = 2, first: tuple[Configuration, ...] = FIRST, **rest: Any) -> Result:
    """Simulate the search of a space in a group with other experiments."""
    workload = CurveWorkload(value, first, LENGTH)
    return simulate(workload, "stage_tree", slots=slots, group=others, details=True, **rest)


def bills(result: Result) -> list[float]:
    """Return the slot seconds that each experiment is billed; their sum is the busy time of the slots."""
    assert result.experiments is not None
    found = [one.slot_seconds for one in result.experiments.values()]
    assert sum(found) == pytest.approx(result.job_seconds)
    return found


def test_two_grids_that_overlap_train_the_union_of_their_positions() -> None:
    result = group(JoiningExperiment(SECOND))
    assert result.iterations == 20
    assert result.states == dict.fromkeys("1234", "COMPLETED")


def test_another_bundle_data_set_or_seed_never_matches() -> None:
    assert group(JoiningExperiment(SECOND, alike=False)).iterations == 16 + 14


def test_who_joins_later_does_not_train_what_is_there() -> None:
    """Check with an experiment that joins at 14 s and wants the trial that runs on the only slot."""
    result = group(JoiningExperiment(SECOND[:1], at=14.0), slots=1)
    assert result.iterations == 16
    assert result.runs is not None
    assert {run.job for run in result.runs} == {"1", "2"}
    assert result.curves is not None
    assert [position for _, position, _ in result.curves["3"]] == list(range(1, LENGTH + 1))


def test_a_shared_stage_is_billed_in_equal_parts_and_the_rest_to_whoever_wants_it() -> None:
    """Check the bills of stage 0-4, wanted by both experiments, and of the three stages after it.

    Positions 4-10 of one trial are wanted by the first experiment, 4-10 of the other trial by both, and 6-10 by the second.
    """
    assert bills(group(JoiningExperiment(SECOND), slots=3)) == pytest.approx([2 + 6 + 3, 2 + 3 + 4])


def test_what_was_trained_before_it_joined_costs_it_nothing() -> None:
    """Check with one slot: the first trial is complete at 10 s, and the second trains from 4 to 10 until 16 s."""
    paid = bills(group(JoiningExperiment(SECOND[:1], at=12.5), slots=1))
    assert paid == pytest.approx([10 + 2 + 2, 2])  # The unit that runs when it joins is billed at its report.


@pytest.mark.parametrize("at", [0.5, 2.5, 5.5, 7.5])
def test_only_what_the_stopped_one_wanted_ceases(at: float) -> None:
    result = group(JoiningExperiment(SECOND, stopped=at), slots=3)
    assert result.states is not None
    assert [result.states[job] for job in "1234"] == ["COMPLETED", "COMPLETED", "TERMINATED", "TERMINATED"]
    alone = {(p, prefix(one, p)) for one in FIRST for p in range(1, LENGTH + 1)}
    assert len(alone) <= result.iterations <= len(alone) + max(0, at - 5)
    bills(result)


@pytest.mark.parametrize("at", [2.5, 5.5, 7.5])
def test_what_a_stopped_experiments_run_has_trained_is_not_trained_again(at: float) -> None:
    """Check with one slot and one trial that two experiments want, of which one is stopped while the trial runs."""
    result = group(
        JoiningExperiment(FIRST[:1]), JoiningExperiment(FIRST[1:], at=0.1, stopped=at), slots=1, first=FIRST[1:]
    )
    assert result.iterations == 16
    whole = group(JoiningExperiment(SECOND[1:], stopped=at), slots=1, first=SECOND[1:])
    assert whole.iterations == LENGTH


class Corrected(StageTreePolicy):
    """A policy that records refused commands."""

    def __init__(self, refused: list[Verdict]) -> None:
        super().__init__(train_best_further=2)
        self._refused = refused

    def on_refused(self, cluster: Cluster, verdict: Verdict) -> None:
        self._refused.append(verdict)
        super().on_refused(cluster, verdict)


def test_the_best_of_an_experiment_that_is_over_trains_no_further() -> None:
    """Check with another experiment that is stopped at 25 s, exactly when both of its trials are complete."""
    refused: list[Verdict] = []
    space = [{"lr": rate} for rate in (1, 2, 3, 4)]
    workload = CurveWorkload(value, space[1:], LENGTH)
    joining = JoiningExperiment([space[0], {"lr": 5}], stopped=25.0)
    result = simulate(workload, lambda: Corrected(refused), slots=2, group=[joining], details=True)
    assert refused == []
    assert result.states == dict.fromkeys("123456", "COMPLETED")
    assert result.experiments is not None
    assert result.experiments[A].jobs == ("1", "2", "3", "6")  # The last job continues the training of its best.


class Watched(StageTreePolicy):
    """A policy that records the snapshots of each job at each report."""

    def __init__(self, seen: list[tuple[float, dict[str, list[int]]]], **parameters: Any) -> None:
        super().__init__(**parameters)
        self._seen = seen

    def application_stat(self, cluster: Cluster, stat: ApplicationStat) -> None:
        self._seen.append((cluster.now, {job: list(cluster.snapshots(job)) for job in cluster.jobs}))


def test_what_only_the_stopped_one_wanted_is_let_go_at_its_stop() -> None:
    """Check that snapshots beyond 6, where the trial of the stopped experiment differs from all others, are released."""
    seen: list[tuple[float, dict[str, list[int]]]] = []
    workload = CurveWorkload(value, FIRST, LENGTH)
    result = simulate(
        workload,
        lambda: Watched(seen, save_every=1),
        slots=3,
        group=[JoiningExperiment(SECOND, stopped=8.5)],
        parameters={"keep_best": 0},
        details=True,
        costs=Costs(resume=0.1),
    )
    assert result.states is not None
    assert result.states["4"] == "TERMINATED"
    before = [saved.get("4", []) for at, saved in seen if at < 8.5]
    after = [saved["4"] for at, saved in seen if at > 9.6]
    assert max(before[-1]) > 6
    assert after[-1] == [9]  # The result of the stopped experiment.


def test_each_has_its_own_end() -> None:
    top = max(value(FIRST[1], p) for p in range(1, 11))
    result = group(JoiningExperiment(SECOND[:1], target=top), slots=1)
    assert result.experiments is not None
    assert "reached the target" in result.experiments[B].reason
    assert result.experiments[A].reason == "all jobs ended"
    assert result.experiments[B].best == top


@pytest.mark.merge
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([None, "sha", "asha", "median"]))
def test_each_one_decides_as_alone(seed: int, tuner: str | None) -> None:
    """Check that trials reach the same positions as in separate searches, and that each state is trained once."""
    rng = random.Random(seed)
    spaces = [random_space(rng, rng.randint(1, 6), 8) for _ in range(3)]
    costs = Costs(snapshot=rng.choice((0, 0.01)), resume=rng.choice((0, 0.02)))
    parameters = {"tuner": tuner} if tuner else {}
    workload = CurveWorkload(value, spaces[0], 8)
    together = simulate(
        workload,
        "stage_tree",
        slots=rng.randint(1, 20),
        group=[JoiningExperiment(space) for space in spaces[1:]],
        costs=costs,
        parameters=parameters,
        details=True,
    )
    assert together.experiments is not None
    assert together.curves is not None
    trained: set[object] = set()
    for space, member in zip(spaces, together.experiments.values(), strict=True):
        alone = simulate(
            CurveWorkload(value, space, 8), "stage_tree", slots=20, costs=costs, parameters=parameters, details=True
        )
        assert alone.curves is not None
        if tuner in (None, "sha"):  # Other tuners decide by the reports so far.
            assert member.best == alone.best
        for job, configuration in zip(member.jobs, space, strict=False):
            reports = together.curves.get(job, [])
            assert all(found == value(configuration, int(p or 0)) for _, p, found in reports)
            trained |= {(p, prefix(configuration, int(p or 0))) for _, p, _ in reports}
    assert together.iterations == len(trained)
    bills(together)


@pytest.mark.merge
@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_lost_runs_and_stops_cost_what_was_not_saved(seed: int) -> None:
    rng = random.Random(seed)
    spaces = [random_space(rng, 4, 8) for _ in range(2)]
    result = simulate(
        CurveWorkload(value, spaces[0], 8),
        "stage_tree",
        slots=3,
        group=[JoiningExperiment(spaces[1], at=rng.uniform(0, 10), stopped=rng.choice((None, 12.0)))],
        faults=Faults(drop=0.05),
        parameters={"max_losses": 1000},
        seed=seed,
        details=True,
    )
    assert result.runs is not None
    assert result.experiments is not None
    assert result.experiments[A].reason == "all jobs ended"
    lost = sum(run.trained for run in result.runs if run.reason == "LOST")
    whole = {(p, prefix(one, p)) for space in spaces for one in space for p in range(1, 9)}
    assert result.iterations <= len(whole) + lost + 8 * 4  # Late experiments may need states that were not saved.
    bills(result)
