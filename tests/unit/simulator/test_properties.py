"""Property-based tests: invariants of any simulation, with random curves, slots, costs, faults and policies."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hopyard.traces import Trace
from hopyard_simulator import Costs, Faults, Fleet, Result, RunInterval, TraceWorkload, simulate
from tests.unit.simulator.policies import Turns

CLOSE = 1e-6

values = st.one_of(st.sampled_from([0.0, 0.1, 0.5, -1.0, math.nan]), st.floats(-2.0, 2.0, width=16))
durations = st.sampled_from([0.0, 0.25, 1.0, 1.0, 2.5])


@st.composite
def traces(draw: st.DrawFn) -> list[Trace]:
    mode: Literal["max", "min"] = draw(st.sampled_from(["max", "min"]))
    made = []
    for job in range(1, draw(st.integers(1, 6)) + 1):
        steps = draw(st.lists(st.integers(1, 2), min_size=1, max_size=5))
        positions = tuple(sum(steps[: n + 1]) for n in range(len(steps)))
        metrics = tuple(draw(st.lists(values, min_size=len(steps), max_size=len(steps))))
        seconds = tuple(draw(st.lists(durations, min_size=len(steps), max_size=len(steps))))
        made.append(Trace(str(job), {"x": job}, "score", mode, metrics, seconds, positions))
    return made


fleets = st.builds(
    Fleet,
    st.integers(1, 5),
    st.integers(1, 3),
    st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=1, max_size=3),
)
seconds = st.sampled_from([0.0, 0.0, 0.1, 0.75, 3.0])
costs = st.builds(Costs, *[seconds] * 7)
faults = st.builds(
    Faults,
    straggling=st.sampled_from([0.0, 1.0]),
    drop=st.sampled_from([0.0, 0.02, 0.3]),
    node_failures=st.sampled_from([0.0, 0.02, 0.2]),
    downtime=st.sampled_from([0.0, 1.0, 10.0]),
    noise=st.sampled_from([0.0, 0.1]),
)
policies = st.sampled_from(
    [
        ("default", {}),
        ("default", {"barrier": True}),
        ("default", {"barrier": True, "epoch": 2, "width": 2}),
        ("bandit", {"evaluation_boundary": 1}),
        ("bandit", {"evaluation_boundary": 2, "epsilon": 0.1}),
        ("asha", {"eta": 2}),
        ("async_hyperband", {"eta": 2, "ahead": 0}),
        ("sha", {"eta": 2, "width": 3}),
        ("hyperband", {"eta": 2}),
        (Turns, {}),
    ]
)
searches = st.fixed_dictionaries(
    {
        "policy": policies,
        "fleet": fleets,
        "costs": costs,
        "terms": st.sampled_from([{}, {"snapshot_every": 0}, {"snapshot_every": 2}]),
        "seed": st.integers(0, 3),
        "order_seed": st.sampled_from([None, 0, 1]),
        "from_scratch": st.booleans(),
        "max_time": st.sampled_from([None, None, 0.5, 4.0]),
    }
)
often = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def run(found: list[Trace], search: Mapping[str, Any], **more: Any) -> Result:
    given = {key: value for key, value in search.items() if key not in ("policy", "terms")}
    policy, parameters = search["policy"]
    arguments = {"details": True, **given, **more}
    return simulate(TraceWorkload(found), policy, parameters={**parameters, **search["terms"]}, **arguments)


def runs(result: Result) -> tuple[RunInterval, ...]:
    assert result.runs is not None
    return result.runs


def curves(result: Result) -> Mapping[str, list[list[float | int | None]]]:
    assert result.curves is not None
    return result.curves


def apart(intervals: list[RunInterval]) -> bool:
    """Return whether each run ends before the next one starts."""
    ordered = sorted(intervals, key=lambda run: (run.start, run.end))
    return all(before.end <= after.start + CLOSE for before, after in pairwise(ordered))


def check(result: Result, found: list[Trace], slots: int) -> None:
    """Check the invariants that hold under any faults."""
    by_slot, jobs = defaultdict[str, list[RunInterval]](list), defaultdict[str, list[RunInterval]](list)
    for one in runs(result):
        assert 0 <= one.start <= one.end <= result.time + CLOSE
        by_slot[one.slot].append(one)
        jobs[one.job].append(one)
    assert all(map(apart, by_slot.values())), "a slot holds two runs"
    assert all(map(apart, jobs.values())), "a job has two runs"
    assert len(by_slot) <= slots
    for one_job in jobs.values():
        by_attempt = sorted(one_job, key=lambda run: run.attempt)
        assert all(before.end <= after.start + CLOSE for before, after in pairwise(by_attempt))

    assert result.job_seconds == pytest.approx(sum(one.end - one.start for one in runs(result)))
    assert result.iterations == sum(one.trained for one in runs(result))
    assert 0 <= result.utilisation <= 1 + CLOSE
    assert result.jobs_started == len(jobs) <= len(found)
    assert result.jobs_terminated <= len(found)

    sign = -1 if result.mode == "min" else 1
    best: float | None = None
    first: float | None = None
    done: list[str] = []
    reports = [(report[0] or 0.0, job, report) for job, curve in curves(result).items() for report in curve]
    for at, job, (_, position, value) in sorted(reports, key=lambda report: report[0]):
        if value is not None and (best is None or sign * value > sign * best):
            best = value
        if first is None and value is not None and result.target is not None and sign * value >= sign * result.target:
            first = at
        if (position or 0) >= result.R and job not in done:
            done.append(job)
    assert result.best == best
    assert result.time_to_target == first
    assert [count for _, count in result.jobs_at_R] == list(range(1, len(done) + 1))
    assert result.first_at_R == (result.jobs_at_R[0][0] if done else None)
    for curve in curves(result).values():
        assert all(one[0] <= two[0] and one[1] < two[1] for one, two in pairwise(curve)), "a curve goes back"  # type: ignore[operator]
    assert all(sum(counts[:2]) <= slots for _, *counts in result.pools["points"])


@often
@given(traces(), searches)
def test_without_faults(found: list[Trace], search: Mapping[str, Any]) -> None:
    result = run(found, search)
    check(result, found, search["fleet"].slots)
    reported = sum(map(len, curves(result).values()))
    if not search["from_scratch"]:
        assert result.iterations == reported
    assert result.iterations >= reported
    # These policies train all jobs to the end.
    if search["max_time"] is None and search["policy"][0] in ("default", Turns):
        assert result.jobs_started == len(found)
        assert {job: [report[1:] for report in curve] for job, curve in curves(result).items()} == {
            job: recorded(found, result, job) for job in curves(result)
        }
        assert len(curves(result)) == len(found)


def recorded(found: list[Trace], result: Result, job: str) -> list[list[float | int | None]]:
    """Return the reports in the trace of a job; jobs are numbered in the order of creation."""
    order = TraceWorkload(found).configurations(result.order_seed)
    (trace,) = (one for one in found if one.hyperparameters == order[int(job) - 1])
    pairs = zip(trace.positions, trace.metrics, strict=True)
    return [[position, value if math.isfinite(value) else None] for position, value in pairs]


@often
@given(traces(), searches, faults)
def test_with_faults(found: list[Trace], search: Mapping[str, Any], wrong: Faults) -> None:
    result = run(found, search, faults=wrong)
    check(result, found, search["fleet"].slots)
    assert result.iterations >= sum(map(len, curves(result).values()))


@often
@given(traces(), searches, faults, st.floats(-2.0, 2.0, width=16))
def test_with_a_target(found: list[Trace], search: Mapping[str, Any], wrong: Faults, target: float) -> None:
    result = run(found, search, faults=wrong, target=target)
    check(result, found, search["fleet"].slots)
    if result.time_to_target is not None:
        assert result.time_to_target <= result.time


@settings(max_examples=25, deadline=None)
@given(traces(), searches, faults)
def test_the_same_again_with_and_without_details(found: list[Trace], search: Mapping[str, Any], wrong: Faults) -> None:
    result = run(found, search, faults=wrong)
    assert repr(run(found, search, faults=wrong)) == repr(result)
    assert run(found, search, faults=wrong, details=False) == replace(
        result, runs=None, states=None, curves=None, labels=None, confidences=None, trained=None
    )
