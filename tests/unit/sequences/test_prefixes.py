"""Tests of the tree of common prefixes: against brute force over (position, values so far), and its bounds against small schedules."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopyard.sequences import (
    Cosine,
    Exponential,
    MultiStep,
    Paced,
    PrefixTree,
    Request,
    SequenceError,
    Warmup,
    as_sequence,
)
from tests.unit.sequences.strategies import sequences

pytestmark = pytest.mark.quick

configurations = st.dictionaries(
    st.sampled_from(["lr", "bs"]),
    sequences().map(lambda sequence: sequence.written()) | st.sampled_from([0.1, 1, True, "a", None]),
    min_size=1,
)
requests = st.lists(st.builds(Request, configurations, st.integers(1, 25), st.sampled_from([0, 0, 1])), max_size=8)


def _prefixes(request: Request) -> list[Any]:
    """Return every prefix of a request, with the values of all its positions."""
    names = sorted(request.configuration)
    found, so_far = list[Any](), tuple[Any, ...]()
    for position in range(request.length):
        # 1 and 1.0 are equal values; 1 and true are not.
        values = [as_sequence(request.configuration[name]).value(position) for name in names]
        so_far = (*so_far, tuple((isinstance(value, bool), value) for value in values))
        found.append((request.root, tuple(names), so_far))
    return found


@pytest.mark.merge
@settings(max_examples=200, deadline=None)
@given(requests)
def test_the_tree_is_what_brute_force_finds(given_requests: list[Request]) -> None:
    tree = PrefixTree(given_requests)
    everything = [prefix for request in given_requests for prefix in _prefixes(request)]
    assert (tree.requests, tree.total, tree.unique) == (len(given_requests), len(everything), len(set(everything)))
    # Branches of a request join from 0 to its end or beyond, and its companions in a branch are equal up to there.
    for root in tree.roots:
        for branch in root.all():
            assert branch.start < branch.stop
            assert all(after.start == branch.stop for after in branch.after)
            through = {number for after in branch.after for number in after.requests}
            assert through <= set(branch.requests)
            shared = {str(_prefixes(given_requests[number])[branch.stop - 1]) for number in branch.requests}
            assert len(shared) == 1


@pytest.mark.merge
@settings(max_examples=50, deadline=None)
@given(requests, st.integers(1, 4))
def test_hus_rule_reaches_the_bound(given_requests: list[Request], slots: int) -> None:
    tree = PrefixTree(given_requests)
    bound = tree.makespan_lower_bound(slots)
    # Hu's rule for an out-tree of equal tasks: always run those with the longest remaining path. Simulated, it is exact.
    height = dict[int, int]()
    for root in tree.roots:
        for branch in reversed(list(root.all())):
            longest = max((height[id(after)] for after in branch.after), default=0)
            height[id(branch)] = branch.stop - branch.start + longest
    ready = [(root, root.start) for root in tree.roots]
    time = 0
    while ready:
        time += 1
        ready.sort(key=lambda task: -(height[id(task[0])] - (task[1] - task[0].start)))
        run, ready = ready[:slots], ready[slots:]
        for branch, position in run:
            if position + 1 < branch.stop:
                ready.append((branch, position + 1))
            else:
                ready += [(after, after.start) for after in branch.after]
    assert max(tree.critical_path, math.ceil(tree.unique / slots)) <= bound == time


def test_bounds_by_hand() -> None:
    # One branch of ten units, then five branches of ten units each.
    tree = PrefixTree(Request({"x": MultiStep(milestones=(10,), values=(0, way)).written()}, 20) for way in range(1, 6))
    assert (tree.total, tree.unique, tree.critical_path) == (100, 60, 20)
    assert [tree.makespan_lower_bound(slots) for slots in (1, 2, 5, 50)] == [60, 35, 20, 20]
    with pytest.raises(SequenceError, match="at least one slot"):
        tree.makespan_lower_bound(0)


def test_a_prefix_that_ends_inside_a_branch_costs_nothing() -> None:
    lr = Warmup(5, 0.1, then=Exponential(gamma=0.9)).written()
    tree = PrefixTree([Request({"lr": lr}, 35), Request({"lr": lr}, 15)])
    assert tree.unique == 35
    (root,) = tree.roots
    assert [(b.start, b.stop, b.requests) for b in root.all()] == [(0, 15, [0, 1]), (15, 35, [0])]


def test_sequences_of_steps_are_shared_only_as_a_whole() -> None:
    one, other = (Paced(Cosine(0.1, t_max), "step").written() for t_max in (5, 6))
    assert PrefixTree([Request({"lr": one}, 10), Request({"lr": other}, 10)]).unique == 20
    assert PrefixTree([Request({"lr": one, "x": x}, 10) for x in (1, MultiStep(1, (4,), 2).written())]).unique == 16


def test_a_request_without_length_is_refused() -> None:
    with pytest.raises(SequenceError, match="length is 1 or more"):
        PrefixTree([Request({}, 0)])
