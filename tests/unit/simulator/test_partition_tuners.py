"""Tests of searches over partitioned data: generators that learn, and tuners compared with the same ones on full copies of the data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from hopyard.generator import Generator
from hopyard.generator import Result as Ended
from hopyard.space import Configuration, Space
from hopyard.traces import Trace
from hopyard_simulator import CurveWorkload, Partitions, Result, TraceWorkload, simulate

SPACE = Space.from_dict({"x": {"int": [1, 100]}})


class Learning(Generator):
    """A generator that records how many results it has at each proposal."""

    def __init__(self, space: Space, seed: int) -> None:
        super().__init__(space, seed)
        self.known: list[str] = []
        self.knew: list[int] = []

    def create(self, job: str, ordinal: int) -> Configuration | None:
        self.knew.append(len(self.known))
        return {"x": 7 * ordinal % 11 + 1}

    def report_final(self, job: str, result: Ended) -> None:
        self.known.append(job)


@pytest.mark.parametrize(("barrier", "knew"), [(False, [0, 0, 0, 1, 2, 3, 4, 5]), (True, [0, 0, 0, 3, 3, 3, 6, 6])])
def test_a_generator_that_learns_knows_those_that_have_left_their_places(barrier: bool, knew: list[int]) -> None:
    """Check a search with three models at a time: the fourth is proposed after the first has ended, in rounds after the first three."""
    generator = Learning(SPACE, 0)
    result = simulate(
        CurveWorkload(lambda given, position: given["x"] + position, (), 6),
        "mop",
        slots=2,
        data=Partitions(train=2, eval=2),
        parameters={"configurations": 3, "barrier": barrier},
        generator=generator,
        jobs=8,
    )
    assert result.reason == "all jobs ended"
    assert generator.knew == knew


def traces(jobs: int, epochs: int) -> TraceWorkload:
    """Return jobs whose epochs all take the same time."""
    return TraceWorkload(
        Trace(
            str(job),
            {"x": job},
            "accuracy",
            "max",
            tuple((7 * job % 29) / 29 * (1 - 0.8**epoch) for epoch in range(1, epochs + 1)),
            (4.0,) * epochs,
        )
        for job in range(1, jobs + 1)
    )


def searched(policy: str, parameters: Mapping[str, Any], **more: Any) -> Result:
    return simulate(traces(27, 9), policy, slots=4, parameters=parameters, details=True, **more)


def epochs(result: Result, units: int) -> Counter[int]:
    """Return how many jobs trained for each number of epochs of `units` units."""
    assert result.runs is not None
    trained: Counter[str] = Counter()
    for run in result.runs:
        trained[run.job] += run.trained
    return Counter(count // units for count in trained.values())


def test_asha_with_as_many_places_as_partitions_decides_as_asha_on_as_many_slots() -> None:
    """Check this where all units take the same time: epochs then end at the same times as on slots with all of the data."""
    asha = {"eta": 3, "r": 1, "brackets": [0], "ahead": 0}
    alone = searched("asha", asha)
    policy = {"tuner": {"name": "asha", **asha}, "configurations": 4, "gang_below": 0}
    hopping = searched("mop", policy, data=Partitions(train=4))
    assert epochs(hopping, 4) == epochs(alone, 1)
    assert hopping.best == pytest.approx(alone.best)
    assert hopping.time == pytest.approx(alone.time, rel=0.05)
    assert hopping.utilisation == pytest.approx(alone.utilisation, rel=0.05)
