"""Tests of curves that end before the ends of their jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopyard_simulator import CurveWorkload, Faults, Lesson, simulate

pytestmark = pytest.mark.quick

END = 8


class Reporting(CurveWorkload):
    """Jobs that report only at given positions; the last one may be before the end of a job or beyond it."""

    def __init__(self, jobs: int, positions: list[int]) -> None:
        super().__init__(lambda given, position: given["x"] / position, [{"x": n} for n in range(1, jobs + 1)], END)
        self._at = positions

    def lesson(self, hyperparameters: Mapping[str, Any]) -> Lesson:
        values = [self._curve(hyperparameters, position) for position in self._at]
        return Lesson(values, [1.0] * len(self._at), self._at)


def test_a_job_that_is_to_train_beyond_its_curve_ends_by_itself() -> None:
    workload = CurveWorkload(lambda given, position: float(position), [{"x": 1}, {"x": 2}], END)
    result = simulate(workload, "stage_tree", slots=2, parameters={"train_best_further": 2}, details=True)
    assert result.reason == "all jobs ended"
    assert result.states == dict.fromkeys("123", "COMPLETED")
    assert result.iterations == 2 * END


@pytest.mark.merge
@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 3),
    st.sets(st.integers(1, END + 3), min_size=1).map(sorted),
    st.integers(1, 4),
    st.sampled_from([None, 1, 2]),
    st.sampled_from([0, 1, 3]),
    st.sampled_from([0.0, 0.1]),
    st.integers(0, 3),
)
def test_whatever_a_program_reports_the_search_ends(
    jobs: int, positions: list[int], further: int, width: int | None, every: int, drop: float, seed: int
) -> None:
    terms = {"train_best_further": further, "width": width, "snapshot_every": every, "max_losses": 10_000}
    result = simulate(
        Reporting(jobs, positions),
        "stage_tree",
        slots=2,
        parameters=terms,
        faults=Faults(drop=drop),
        seed=seed,
        details=True,
    )
    assert result.reason == "all jobs ended"
    assert result.states is not None
    assert result.curves is not None
    assert set(result.states.values()) == {"COMPLETED"}
    # A job ends at its first report at or beyond its end, or when its program ends.
    ends = next((n for n, position in enumerate(positions, 1) if position >= END), len(positions))
    for job in map(str, range(1, jobs + 1)):
        assert [position for _, position, _ in result.curves[job]] == positions[:ends]
    assert result.iterations >= jobs * ends
