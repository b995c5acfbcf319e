"""Tests that later searches receive what earlier ones have trained, and train only the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from hopyard.sequences import PrefixTree, Request
from hopyard_simulator import CurveWorkload, Result, named, simulate

pytestmark = pytest.mark.quick

END = 12


def changing(at: int, to: float) -> Mapping[str, Any]:
    return {"lr": {"sequence": {"multi_step": {"milestones": [at], "values": [0.1, to]}}}}


def search(configurations: Sequence[Mapping[str, Any]], **rest: Any) -> Result:
    workload = CurveWorkload(lambda _given, position: float(position), configurations, END)
    return simulate(workload, "stage_tree", slots=2, details=True, **rest)


def unique(*searches: Sequence[Mapping[str, Any]]) -> int:
    return PrefixTree(Request(each, END) for one in searches for each in one).unique


def test_three_searches_one_after_another_train_what_is_new() -> None:
    first = [changing(4, 0.2), changing(8, 0.2)]
    second = [changing(8, 0.2), changing(8, 0.3), changing(6, 0.2)]
    third = [changing(6, 0.2), changing(4, 0.2), changing(8, 0.3)]
    one = search(first)
    assert one.iterations == unique(first) == 12 + 8
    past = named(one.trained or (), "one")
    # Snapshots are at the branch (4) and at the ends, so the trials that change at 8 and at 6 start from 4.
    two = search(second, earlier=past)
    assert two.iterations == (6 - 4) + 6 + (8 - 6) + 4
    past += named(two.trained or (), "two")
    three = search(third, earlier=past)
    assert (three.iterations, three.job_seconds, three.reason) == (0, 0.0, "all jobs ended")
    assert {job: [position for _, position, _ in reports] for job, reports in (three.curves or {}).items()} == {
        job: list(range(1, END + 1)) for job in ("1", "2", "3")
    }


def test_with_snapshots_everywhere_nothing_is_trained_twice() -> None:
    first = [changing(4, 0.2), changing(8, 0.2)]
    second = [changing(8, 0.3), changing(6, 0.2), changing(9, 0.2)]
    one = search(first, parameters={"save_every": 1})
    two = search(second, parameters={"save_every": 1}, earlier=one.trained)
    assert one.iterations + two.iterations == unique(first, second)


def test_without_sharing_the_past_is_nobodys() -> None:
    first = [changing(4, 0.2), changing(8, 0.2)]
    one = search(first)
    two = search(first, parameters={"share": False}, earlier=one.trained)
    assert two.iterations == 2 * END
