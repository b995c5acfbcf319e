"""Tests of population based training on a stage tree: same decisions as alone, forks as branches, equal ones trained once."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from hopyard.errors import InvalidInput
from hopyard.policy import Cluster, Policy
from hopyard.space import Space
from hopyard_policies.pbt import PbtPolicy
from hopyard_policies.stage_tree.policy import StageTreePolicy
from hopyard_simulator import Costs, CurveWorkload, Faults, Result, simulate
from hopyard_simulator.world import SimulationError

SPACE = Space.from_dict({"x": {"uniform": [0, 100]}, "gain": {"choice": [1, 2]}})
# One job is forked at a time and its fork has the other gain, so that nothing is random and all searches are comparable.
TERMS: Mapping[str, Any] = {
    "population": 5,
    "interval": 2,
    "lag": 4,
    "truncation": 0.2,
    "resample": 0,
    "frozen": ["x"],
}
ON_TREE: Mapping[str, Any] = {"tuner": {"name": "pbt", **TERMS}}


@dataclasses.dataclass
class Found:
    """The outcome of a search.

    `jobs` has each job's configuration and final state; `curves` has the curves, with the part that a fork inherits.
    """

    result: Result
    jobs: Mapping[str, tuple[Mapping[str, Any], str]]
    curves: Mapping[str, Sequence[tuple[int, float]]]


def searched(
    policy: type[Policy],
    parameters: Mapping[str, Any],
    members: Sequence[Mapping[str, Any]],
    *,
    slots: int,
    costs: Costs | None = None,
    faults: Faults | None = None,
    seconds: float | None = None,
    seed: int = 0,
) -> Found:
    """Simulate a search; each configuration takes its own time per position, or `seconds` if given.

    Runs save at the ends of intervals only. If they saved more often, a copy without a tree would begin at a newer snapshot.
    """
    length = 16

    def curve(given: Mapping[str, Any], position: int) -> float:
        return float(given["x"]) * (1 + math.sin(position + given["gain"])) + position * int(given["gain"])

    def pace(given: Mapping[str, Any], position: int) -> float:
        return seconds if seconds is not None else 1 + float(given["x"]) / 977

    seen: list[Cluster] = []

    def demand(self: Policy, cluster: Cluster) -> int | None:
        seen[:] = [cluster]
        return policy.demand(self, cluster)

    watched: type[Policy] = type("Watched", (policy,), {"demand": demand})
    result = simulate(
        CurveWorkload(curve, members, length, seconds=pace),
        watched,
        slots=slots,
        parameters={"snapshot_every": TERMS["interval"], **parameters},
        space=SPACE,
        costs=costs,
        faults=faults,
        seed=seed,
        details=True,
    )
    (last,) = seen  # It shows the final state of all jobs.
    jobs = {job.id: (job.hyperparameters, job.state.value) for job in last.jobs.values()}
    curves = {job: [(p.position, p.metrics["metric"]) for p in last.curve(job)] for job in jobs}
    return Found(result, jobs, curves)


def members(*values: float) -> list[Mapping[str, Any]]:
    """Return one configuration for each value of x."""
    return [{"x": value, "gain": 1} for value in values]


DIFFERENT = members(50, 90, 71, 30, 10)


def test_it_decides_as_alone() -> None:
    """Check that forks and ends are the same as without a tree, shared or not, with a slot for each member."""
    alone = searched(PbtPolicy, TERMS, DIFFERENT, slots=5)
    assert len(alone.jobs) >= len(DIFFERENT) + 3
    for share in (False, True):
        tree = searched(StageTreePolicy, {**ON_TREE, "share": share}, DIFFERENT, slots=5)
        assert tree.curves == alone.curves, share
        assert tree.jobs == alone.jobs, share
        assert tree.result.iterations == alone.result.iterations


def test_equal_members_and_equal_copies_train_once() -> None:
    twins = members(50, 50, 90, 30, 30)
    alone = searched(PbtPolicy, TERMS, twins, slots=5, seconds=1)
    tree = searched(StageTreePolicy, ON_TREE, twins, slots=5, seconds=1)
    assert tree.result.reason == alone.result.reason == "all jobs ended"
    assert tree.result.best == alone.result.best
    assert tree.result.iterations < alone.result.iterations
    trained = {
        (position, tuple(tree.curves[job][:position]))
        for job, reports in (tree.result.curves or {}).items()
        for _, at, _ in reports
        for position in (int(at or 0),)
    }
    assert tree.result.iterations == len(trained)


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_fewer_slots_than_members_do_as_well(slots: int) -> None:
    costs = Costs(start=0.5, resume=0.1, snapshot=0.1, latency=0.05)
    tree = searched(StageTreePolicy, ON_TREE, DIFFERENT, slots=slots, costs=costs)
    assert tree.result.reason == "all jobs ended"
    ends = [state for _, state in tree.jobs.values()]
    assert ends.count("COMPLETED") == 5
    assert tree.result.iterations == sum(len(reports) for reports in (tree.result.curves or {}).values())


def test_lost_runs_and_snapshots_are_no_end() -> None:
    copied = 0
    for seed in range(12):
        faults = Faults(drop=0.05, node_failures=0.01, downtime=5)
        parameters = {**ON_TREE, "max_losses": 1000}
        tree = searched(StageTreePolicy, parameters, DIFFERENT, slots=3, faults=faults, seed=seed)
        assert tree.result.reason == "all jobs ended", f"seed {seed}"
        assert any(state == "COMPLETED" for _, state in tree.jobs.values())
        copied += len(tree.jobs) - len(DIFFERENT)
    assert copied > 12


def test_the_tuner_looks_at_the_terms_before_anything_runs() -> None:
    with pytest.raises(InvalidInput, match="it must know the search space"):
        simulate(CurveWorkload(lambda _, p: p, DIFFERENT, 4), "stage_tree", slots=1, parameters={"tuner": "pbt"})


class Doubling(PbtPolicy):
    """A user's tuner that forks jobs but does not declare it with `copies`."""

    copies = False


def test_a_tuner_that_copies_has_to_say_so() -> None:
    tuner = {"name": f"{__name__}:{Doubling.__name__}", **TERMS}
    with pytest.raises(SimulationError, match=r"a tuner that copies trials says so: `copies = True`"):
        searched(StageTreePolicy, {"tuner": tuner}, DIFFERENT, slots=2)


@pytest.mark.parametrize("seed", [1, 2, 6])
def test_it_comes_to_rest_where_copies_can_only_be_equal_to_those_before(seed: int) -> None:
    """Check that a search ends in which forks made from an older snapshot of the best are answered at once."""
    rng = random.Random(seed)
    values, size, paces = (10, 20, 30), rng.randint(2, 6), [rng.choice([1, 1, 7]) for _ in range(3)]
    interval = rng.randint(1, 3)
    terms = {**TERMS, "population": size, "interval": interval, "lag": rng.randint(1, 4) * interval, "truncation": 0.5}

    def curve(given: Mapping[str, Any], position: int) -> float:
        digest = hashlib.sha256(f"{seed} {given['x']} {given['gain']} {position}".encode()).hexdigest()
        return int(digest[:6], 16) / 2**24

    result = simulate(
        CurveWorkload(
            curve,
            [{"x": float(rng.choice(values)), "gain": 1} for _ in range(size)],
            12,
            seconds=lambda given, position: paces[int(given["x"]) // 10 - 1],
        ),
        StageTreePolicy,
        slots=rng.randint(1, 4),
        parameters={"tuner": {"name": "pbt", **terms}},
        space=SPACE,
        seed=seed,
    )
    assert result.reason == "all jobs ended"
