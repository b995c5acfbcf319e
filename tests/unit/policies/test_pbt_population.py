"""Tests of one population: which members are the best and the worst fifth, and the defaults of appendix A.3 of the paper."""

from __future__ import annotations

import inspect
from collections import Counter

import pytest

from hopyard_policies.pbt import PbtPolicy
from hopyard_policies.pbt.explore import FACTORS
from hopyard_policies.pbt.population import Population
from tests.unit.policies.test_pbt import copies, five, prepared

pytestmark = pytest.mark.quick


def population(values: dict[str, float], size: int = 0) -> Population:
    """Return a population with these values at the first boundary; further members, up to `size`, have not reached it."""
    found = Population(0, "x", max(size, len(values)), interval=10, lag=20)
    found.members = dict.fromkeys([*values, *(f"late{number}" for number in range(size - len(values)))])
    for job, value in values.items():
        assert found.passes(job, 10, value)
    return found


def test_the_defaults_are_those_of_the_paper() -> None:
    """Check the values of A.3.

    The worst 20 % are replaced, a quarter of the hyperparameters is resampled, and others are scaled by 0.8 or 1.2.
    """
    given = {name: one.default for name, one in inspect.signature(PbtPolicy).parameters.items()}
    assert (given["truncation"], given["resample"], FACTORS) == (0.2, 0.25, (0.8, 1.2))
    assert 20 <= given["population"] <= 40


@pytest.mark.parametrize(
    ("size", "part", "count"),
    [(20, 0.2, 4), (25, 0.2, 5), (5, 0.2, 1), (4, 0.2, 0), pytest.param(100, 0.29, 29, marks=pytest.mark.merge)],
)
def test_so_many_give_way_and_so_many_are_copied(size: int, part: float, count: int) -> None:
    found = population({str(number): float(number * 37 % 101) for number in range(size)})
    ranked = sorted(found.members, key=lambda job: -found.results[job][0])
    assert found.best(part) == ranked[:count]
    assert [job for job in ranked if found.is_last(job, part)] == ranked[size - count :]


def test_nobody_gives_way_whom_those_to_come_may_be_worse_than() -> None:
    """Check that a member is replaced only when it is certainly among the worst two of ten: with nine known values, not with eight."""
    values = {str(number): float(number) for number in range(8)}
    assert not any(population(values, 10).is_last(job, 0.2) for job in values)
    values["8"] = 8.0
    assert [job for job in values if population(values, 10).is_last(job, 0.2)] == ["0"]


def test_each_two_are_compared_where_both_have_been() -> None:
    found = population({"ahead": 0.9, "behind": 0.5})
    assert found.passes("ahead", 20, 0.1)
    assert found.is_better("ahead", "behind"), "at 10, where both were"
    assert not found.passes("ahead", 25, 1.0), "no boundary since then"
    assert found.passes("behind", 20, 0.2)
    assert found.is_better("behind", "ahead")


@pytest.mark.merge
def test_the_best_fifth_is_copied_evenly() -> None:
    """Check that the last two of ten, the worst, are replaced by forks of job 1 or job 2, chosen at random."""
    values = {number: 100.0 - number for number in range(1, 11)}
    parents = Counter[str]()
    for seed in range(40):
        cluster = prepared(five(population=10), values, seed=seed)
        cluster.run()
        made = [parent for parent, position in copies(cluster).values() if position == 2]
        assert len(made) >= 2
        parents.update(made[:2])
    assert set(parents) == {"1", "2"}
    assert min(parents.values()) > 25, parents
