"""Asynchronous halving keeps hundreds of machines busy, and brings the first configuration to R as if it were alone."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pytest

from hopyard_scheduler.simulator import Result, simulate
from hopyard_scheduler.simulator.workload import Lesson, Workload

MACHINES = 500
JOBS = 3000
RUNGS = (1, 4, 16, 64, 256)


class Curves(Workload):
    """A random value for each configuration, and a second for each position; reported at the rungs."""

    mode: Literal["max", "min"] = "min"
    max_position = RUNGS[-1]

    def __init__(self, count: int) -> None:
        self.given = [{"value": random.Random(number).random()} for number in range(count)]

    def configurations(self, order_seed: int | None) -> Sequence[Mapping[str, Any]]:
        return self.given

    def lesson(self, hyperparameters: Mapping[str, Any]) -> Lesson:
        return Lesson([hyperparameters["value"]] * 5, (1.0, 3.0, 12.0, 48.0, 192.0), RUNGS)


def busy(result: Result, until: float) -> float:
    """The part of the machines' time in which they trained, up to a moment."""
    assert result.runs is not None
    trained = sum(max(min(run.end, until) - run.start, 0.0) for run in result.runs)
    return trained / (result.slots * until)


@pytest.mark.timeout(300)
def test_asha_keeps_500_machines_busy_while_there_are_configurations() -> None:
    result = simulate(Curves(JOBS), "asha", slots=MACHINES, parameters={"brackets": [0]}, details=True)
    assert result.runs is not None
    began: dict[str, float] = {}
    for run in result.runs:
        began[run.job] = min(run.start, began.get(run.job, run.start))
    assert len(began) == JOBS
    assert busy(result, max(began.values())) >= 0.99
    assert result.first_at_R == pytest.approx(1.00 * RUNGS[-1])
    assert len(result.jobs_at_R) >= JOBS // 4**4
