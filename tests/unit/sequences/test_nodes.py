"""Tests of the keys of the search plan's nodes: equal exactly for equal training."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard.sequences import plan_path, values_at
from hopyard.sequences.plan_nodes import LONGEST

pytestmark = pytest.mark.quick

LENGTH = 12


def multi(milestones: list[int], values: list[Any]) -> dict[str, Any]:
    return {"sequence": {"multi_step": {"milestones": milestones, "values": values}}}


def covered(configuration: dict[str, Any], until: int, root: str = "r") -> list[str]:
    """Return the key of the node of each position below `until`."""
    return [one.node for one in plan_path(configuration, until, root) for _ in range(one.start, one.end)]


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    def sequence() -> Any:
        kind = draw(st.sampled_from(["plain", "steps", "cosine"]))
        if kind == "plain":
            return draw(st.sampled_from([1, 1.0, 2, True, "1"]))
        if kind == "cosine":
            return {"sequence": {"cosine": {"initial": draw(st.sampled_from([1, 2])), "t_max": 8}}}
        marks = sorted(draw(st.sets(st.integers(1, LENGTH - 1), min_size=1, max_size=3)))
        return multi(marks, [draw(st.sampled_from([1, 2])) for _ in range(len(marks) + 1)])

    return {"lr": sequence(), "group": {"momentum": sequence()}}


@pytest.mark.merge
@given(configurations(), configurations())
def test_positions_have_equal_keys_only_where_all_values_up_to_them_are_equal(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    mine, theirs = covered(one, LENGTH), covered(other, LENGTH)
    same = True
    for position in range(LENGTH):
        here, there = values_at(one, position), values_at(other, position)
        same = same and repr(_typed(here)) == repr(_typed(there))
        if mine[position] == theirs[position]:
            assert same, (one, other, position)


def _typed(values: Any) -> Any:
    if isinstance(values, dict):
        return {name: _typed(value) for name, value in values.items()}
    return float(values) if isinstance(values, int | float) and not isinstance(values, bool) else values


def test_a_later_change_leaves_what_is_before_it_in_common() -> None:
    early, late, never = multi([4], [1, 2]), multi([8], [1, 2]), 1
    paths = [plan_path({"lr": value, "x": 3}, LENGTH, "r") for value in (early, late, never)]
    assert len({path[0].node for path in paths}) == 1
    assert [[(one.start, one.end) for one in path] for path in paths] == [
        [(0, 4), (4, 12)],
        [(0, 8), (8, 12)],
        [(0, 12)],
    ]
    assert len({path[-1].node for path in paths}) == 3
    assert paths[0][1].parent == paths[0][0].node
    assert paths[0][1].values == {"lr": 2, "x": 3}


def test_what_is_written_otherwise_is_the_same() -> None:
    written = multi([4, 8], [1, 1.0, 2])
    assert plan_path({"lr": written}, LENGTH, "r") == plan_path({"lr": multi([8], [1, 2])}, LENGTH, "r")


def test_another_root_shares_nothing() -> None:
    assert not set(covered({"lr": 1}, LENGTH, "a")) & set(covered({"lr": 1}, LENGTH, "b"))


def test_a_longer_training_has_the_same_nodes() -> None:
    given = {"lr": multi([4], [1, 2])}
    assert covered(given, 20)[:LENGTH] == covered(given, LENGTH)


def test_keys_stay_what_they_are() -> None:
    """Check that keys do not change between versions: databases contain them."""
    cosine = {"sequence": {"cosine": {"initial": 1, "t_max": 8}}}
    found = [plan_path({"lr": value}, 8, "r")[0].node for value in (0.1, cosine)]
    assert found == [
        "e1b6af7f76f35db05d6a12362521be54369d04ff2e7e26a63a06f25d5c6bf1f3",
        "812ae80a97bf8ade4090255229f91230d8a63740b55ba3b054532096b492771e",
    ]


def test_what_has_no_end_has_no_way() -> None:
    assert plan_path({"lr": 1}, LONGEST + 1, "r") == ()
