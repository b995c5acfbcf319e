"""Tests of curves from a function: they end where jobs are complete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from hopyard_simulator import CurveWorkload, Faults, simulate

pytestmark = pytest.mark.quick


def curve(given: Mapping[str, Any], position: int) -> float:
    return float(given["x"]) * position / 4


def workload() -> CurveWorkload:
    return CurveWorkload(curve, [{"x": 0.4}, {"x": 0.8}], 4, seconds=2.0)


def test_a_lesson_is_as_long_as_training() -> None:
    lesson = workload().lesson({"x": 0.8})
    assert list(lesson.values) == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert list(lesson.seconds) == [2.0] * 4
    assert lesson.values[-1] == lesson.values[3]
    with pytest.raises(IndexError):
        lesson.values[4]


def test_noise_is_added_to_it() -> None:
    result = simulate(workload(), "default", slots=2, faults=Faults(noise=0.01), seed=1)
    assert result.time == 8.0
    assert result.best is not None
    assert 0 < abs(result.best - 0.8) < 0.1
