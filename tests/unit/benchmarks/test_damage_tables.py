"""Tests of the results that the damage benchmark compares: they do not depend on which job trains a shared stage."""

from __future__ import annotations

import pytest
from damage_cases.tables import table

from hopyard.client.types import Experiment, ExperimentState, Job, JobState, Metric, Report, Statistic

pytestmark = pytest.mark.quick

EXPERIMENT = Experiment("e", "e", ExperimentState.COMPLETED, metric=Metric("score"))
SCORES = {1: 0.1, 2: 0.7, 3: 0.3, 4: 0.2}


def rows(job: str, begin: int = 0) -> list[Statistic]:
    return [Statistic(job, 1, Report(at, {"score": score}, 0.1)) for at, score in SCORES.items() if at > begin]


def job(name: str, parent: str | None = None, fork: int = 0) -> Job:
    best, at = (0.7, 2) if fork < 2 else (0.3, 3)
    return Job(
        "e",
        name,
        JobState.COMPLETED,
        position=4,
        parent=parent,
        fork_position=fork,
        best_value=best,
        best_position=at,
        last_value=0.2,
    )


def test_it_does_not_matter_which_job_trains_a_shared_stage() -> None:
    one = table(EXPERIMENT, [job("1"), job("2", "1", 2)], [*rows("1"), *rows("2", 2)])
    other = table(EXPERIMENT, [job("1", "2", 1), job("2")], [*rows("1", 1), *rows("2")])
    assert one == other
    assert [row[5:] for row in one["jobs"]] == [[(0.7).hex(), 2]] * 2
    assert len(one["reports"]) == 8


@pytest.mark.parametrize("change", ["doubled", "missing", "another value"])
def test_each_report_counts(change: str) -> None:
    right = rows("1")
    wrong = {
        "doubled": [*right, right[1]],
        "missing": right[1:],
        "another value": [*right[:3], Statistic("1", 1, Report(4, {"score": 0.25}, 0.1))],
    }[change]
    assert table(EXPERIMENT, [job("1")], right) != table(EXPERIMENT, [job("1")], wrong)
