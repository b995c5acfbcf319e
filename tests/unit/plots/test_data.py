"""Tests of the data that each kind of plot shows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hopyard._runtime.datasets.usage import Storage
from hopyard.errors import InvalidInput, NotFound
from hopyard.plots import (
    KINDS,
    JobCurve,
    JobEnd,
    PartitionReplicas,
    PlottedRun,
    PlottedVisit,
    Search,
    SearchSource,
    default_kind,
    document,
    gather,
)
from hopyard.plots.data.targets import quantile

NAN = float("nan")


def curve(job: str, *values: float, end: JobEnd = JobEnd.COMPLETED) -> JobCurve:
    steps = np.arange(1.0, len(values) + 1)
    return JobCurve(job, end, steps * 10, steps, np.array(values, float))


def search(**more: Any) -> Search:
    known = {
        "where": "r.json",
        "source": SearchSource.SIMULATION,
        "policy": "pop",
        "mode": "max",
        "slots": 2,
        "time": 100.0,
    }
    return Search(**{**known, **more})


def reached(policy: str, *times: float | None, slots: int | None = 2, **more: Any) -> list[Search]:
    return [
        search(policy=policy, slots=slots, target=0.9, time_to_target=time, order_seed=seed, **more)
        for seed, time in enumerate(times)
    ]


# ---------------------------------------------------------------------------------------------------------------- curves


def test_the_best_job_is_that_of_the_best_value_in_the_search_s_direction() -> None:
    curves = (curve("1", 0.2, 0.9, 0.5), curve("2", 0.1, 0.3, 0.8), curve("3"))
    best = gather([search(curves=curves)], "curves")
    assert (best.best, best.best_value) == ("1", 0.9)
    least = gather([search(curves=curves, mode="min")], "curves")
    assert (least.best, least.best_value) == ("2", 0.1)
    assert gather([search(curves=curves, mode=None)], "curves").best is None
    assert gather([search(curves=curves, mode=None, best=0.8)], "curves").best == "2"


def test_of_equal_values_the_best_is_the_one_that_the_search_calls_so() -> None:
    curves = (curve("1", 0.2, 0.9), curve("2", 0.9, 0.3), curve("3", 0.1))
    assert gather([search(curves=curves, best_job="2")], "curves").best == "2"
    assert gather([search(curves=curves)], "curves").best == "1"
    # Job 3 never reached that value.
    assert gather([search(curves=curves, best_job="3")], "curves").best == "1"


def test_values_far_out_do_not_flatten_the_others_and_are_counted() -> None:
    usual = [curve(str(k), *np.linspace(2.0, 0.5, 20)) for k in range(20)]
    shown = gather([search(curves=(*usual, curve("wild", 2.0, 1e9, NAN)), mode="min", target=0.1)], "curves")
    assert shown.beyond == 1
    assert shown.low < 0.1
    assert 2.0 < shown.high < 5.0
    every = gather([search(curves=tuple(usual), mode="min")], "curves")
    assert every.beyond == 0


def test_a_target_and_one_value_are_within_the_axis() -> None:
    shown = gather([search(curves=(curve("1", 0.5),), target=3.0)], "curves")
    assert shown.low < 0.5 < 3.0 < shown.high
    flat = gather([search(curves=(curve("1", 0.0, 0.0),))], "curves")
    assert flat.low < 0.0 < flat.high


def test_curves_are_of_one_search_that_has_some() -> None:
    with pytest.raises(InvalidInput, match=r"shows one search, and here are 2: r\.json, r\.json; name one"):
        gather([search(curves=()), search(curves=())], "curves")
    with pytest.raises(InvalidInput, match=r"^over: found 'speed', allowed are position, time$"):
        gather([search(curves=(curve("1", 0.5),))], "curves", over="speed")
    with pytest.raises(InvalidInput, match=r"r\.json: it has no curves, which --kind curves shows"):
        gather([search()], "curves")
    with pytest.raises(NotFound, match=r"no job has reported a finite metric yet"):
        gather([search(curves=(curve("1", NAN),))], "curves")


# ------------------------------------------------------------------------------------------------------------- durations


def test_durations_are_of_all_jobs_of_a_policy_and_count_a_gang_once() -> None:
    runs = (
        PlottedRun("a/0", "1", 1, 0.0, 10.0, "SUSPENDED"),
        PlottedRun("a/1", "2", 1, 0.0, 30.0, "UNTIL"),
        PlottedRun("b/0", "2", 1, 0.0, 30.0, "UNTIL"),
        PlottedRun("a/0", "1", 2, 50.0, None),
    )
    shown = gather([search(runs=runs), search(durations={"1": 5.0, "2": 0.0})], "durations")
    (pop,) = shown.policies
    assert pop.durations.tolist() == [5.0, 30.0, 60.0]


def test_durations_over_positions_are_where_jobs_stand() -> None:
    curves = (curve("1", 0.1, 0.2), curve("2", 0.1, end=JobEnd.OPEN), curve("3"))
    shown = gather([search(curves=curves, unit="epochs")], "durations", "position")
    assert shown.policies[0].durations.tolist() == [1.0, 2.0]
    assert (shown.policies[0].going_on, shown.unit) == (1, "epochs")
    with pytest.raises(InvalidInput, match=r"no runs, which --kind durations shows"):
        gather([search()], "durations")
    with pytest.raises(NotFound, match=r"no job has trained yet"):
        gather([search(durations={"1": 0.0})], "durations")


# --------------------------------------------------------------------------------------------------- times to the target


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_quantiles_are_those_of_numpy_where_all_are_finite(count: int) -> None:
    times = np.sort(np.random.default_rng(count).random(count))
    for q in (0.0, 0.25, 0.5, 0.75, 1.0):
        assert quantile(times.tolist(), 0, q) == pytest.approx(float(np.quantile(times, q)))


def test_what_never_reached_the_target_takes_for_ever() -> None:
    assert quantile([1.0, 2.0, 3.0], 1, 0.5) == 2.5
    assert quantile([1.0, 2.0, 3.0], 1, 0.75) == math.inf
    assert quantile([1.0, 2.0], 2, 0.5) == math.inf
    assert quantile([], 3, 0.25) == math.inf
    shown = gather([*reached("pop", 10.0, 20.0, 30.0), *reached("default", 50.0, None, None, time=500.0)], "boxes")
    ((pop, default),) = (panel.policies for panel in shown.panels)
    assert (pop.lower, pop.median, pop.upper, pop.never, pop.spread) == (15.0, 20.0, 25.0, 0, 20.0)
    assert (default.median, default.never, default.count, default.spread) == (math.inf, 2, 3, math.inf)
    assert shown.longest == 500.0
    assert document(shown)["panels"][0]["policies"][1]["median"] is None


def test_only_what_had_the_same_to_do_is_in_one_panel() -> None:
    some = [
        *reached("pop", 1.0, slots=4, traces=("t/cifar.jsonl.gz",)),
        *reached("pop", 2.0, slots=2, traces=("t/cifar.jsonl.gz",)),
        *reached("pop", 3.0, slots=2, traces=("t/lunar.jsonl.gz",)),
    ]
    shown = gather(some, "boxes")
    assert [panel.title for panel in shown.panels] == ["cifar, 2 slots", "cifar, 4 slots", "lunar, 2 slots"]
    assert [panel.policies[0].times for panel in shown.panels] == [(2.0,), (1.0,), (3.0,)]
    one = gather(reached("pop", 1.0), "boxes")
    assert [panel.title for panel in one.panels] == [""]


def test_policies_are_told_apart_by_what_differs() -> None:
    some = [*reached("pop", 1.0, predictor="mcmc"), *reached("pop", 2.0, predictor="ensemble"), *reached("bandit", 3.0)]
    (panel,) = gather(some, "boxes").panels
    assert [times.label for times in panel.policies] == ["pop + mcmc", "pop + ensemble", "bandit"]
    live = replace(some[0], source=SearchSource.EXPERIMENT, predictor=None)
    (panel,) = gather([live, some[0]], "boxes").panels
    assert [times.label for times in panel.policies] == ["pop, live", "pop, simulated"]


def test_targets_are_compared_with_themselves_only() -> None:
    with pytest.raises(InvalidInput, match=r"r\.json has 0\.9, r\.json has 0\.8"):
        gather([*reached("pop", 1.0), search(target=0.8)], "boxes")
    with pytest.raises(InvalidInput, match=r"it has no target, which --kind boxes shows"):
        gather([search()], "boxes")


def test_capacity_is_over_slots_and_orders_over_orders() -> None:
    some = [*reached("pop", 40.0, 60.0, slots=2), *reached("pop", 20.0, None, slots=8)]
    (panel,) = gather(some, "capacity").panels
    (pop,) = panel.policies
    assert pop.slots == (2, 8)
    assert [times.median for times in pop.times] == [50.0, math.inf]
    with pytest.raises(InvalidInput, match=r"compares numbers of slots, and all searches here have 2"):
        gather(reached("pop", 1.0, 2.0), "capacity")
    with pytest.raises(InvalidInput, match=r"compares orders of configurations, and all searches here have order 0"):
        gather(reached("pop", 1.0), "orders")
    with pytest.raises(InvalidInput, match=r'it has no "order_seed"'):
        gather([replace(some[0], order_seed=None)], "orders")


# -------------------------------------------------------------------------------------------------------------- timelines


def test_slots_are_in_the_order_of_their_numbers() -> None:
    runs = tuple(PlottedRun(f"node{k}/{m}", "1", 1, 0.0, 5.0, "UNTIL") for k in (10, 2) for m in (10, 9))
    shown = gather([search(runs=runs)], "gantt")
    assert shown.slots == ("node2/9", "node2/10", "node10/9", "node10/10")
    assert shown.time == 5.0
    going_on = gather([search(runs=(*runs, PlottedRun("node2/9", "2", 1, 6.0)))], "gantt")
    assert going_on.time == 100.0
    with pytest.raises(NotFound, match=r"nothing has run yet"):
        gather([search(runs=())], "gantt")


def test_a_gang_is_one_run_of_so_many_slots() -> None:
    runs = (
        PlottedRun("a/0", "10", 1, 0.0, 20.0, "SUSPENDED"),
        PlottedRun("a/0", "10", 2, 20.0, 21.0, "UNTIL", mode="PROFILE"),
        PlottedRun("a/0", "10", 3, 30.0, 50.0, "UNTIL"),
        PlottedRun("b/0", "10", 3, 30.0, 51.0, "UNTIL"),
        PlottedRun("b/0", "2", 1, 0.0, 30.0, "LOST"),
        PlottedRun("c/0", "2", 2, 60.0),
        PlottedRun("b/0", "2", 2, 60.0),
    )
    shown = gather([search(runs=runs)], "gangs")
    assert shown.jobs == ("2", "10")
    assert {(run.job, run.attempt): (run.slots, run.end) for run in shown.runs} == {
        ("10", 1): (1, 20.0),
        ("10", 2): (1, 21.0),
        ("10", 3): (2, 51.0),
        ("2", 1): (1, 30.0),
        ("2", 2): (2, None),
    }
    used = ((0.0, 0), (0.0, 2), (20.0, 2), (21.0, 1), (30.0, 2), (50.0, 1), (51.0, 0), (60.0, 2))
    assert (shown.used, shown.most, shown.time) == (used, 3, 100.0)
    assert shown.seconds == {1: 20.0 + 30.0, 2: 2 * 21.0 + 2 * 40.0}  # without measurements


def test_pools_and_jobs_at_the_end() -> None:
    shown = gather([search(pools=((0.0, 0.0, 2.0), (50.0, 1.0, 1.0)))], "pools")
    assert (shown.points[-1], shown.time) == ((50.0, 1.0, 1.0), 100.0)
    with pytest.raises(NotFound, match=r"into no pools; pop does"):
        gather([search(pools=())], "pools")
    others = ((0.0, 0.0, 2.0), (50.0, 0.0, 1.0))
    with pytest.raises(NotFound, match=r"no job was ever promising, so there are no two pools"):
        gather([search(pools=others, labels={})], "pools")
    assert gather([search(pools=others, labels={"1": ((0.0, 0.0),)})], "pools").points == others
    two = [search(completed_jobs=((0.0, 0.0), (120.0, 1.0)), max_position=60, unit="epochs"), search(completed_jobs=())]
    full = gather(two, "jobs_at_R")
    assert [steps.time for steps in full.searches] == [120.0, 100.0]
    assert full.position is None


# ------------------------------------------------------------------------------------------------------------------- hops


def test_what_slots_did_counts_from_the_first_visit_to_the_last() -> None:
    visits = (
        PlottedVisit("b/0", "b", "2", "train/1", False, 12.0, 13.0, 20.0, "UNTIL", 7),
        PlottedVisit("a/0", "a", "1", "train/0", False, 10.0, 11.0, 15.0, "UNTIL"),
        PlottedVisit("a/0", "a", "1", "eval/0", True, 16.0, 16.5, 18.0, "UNTIL"),
        PlottedVisit("b/0", "b", "1", "train/10", False, 21.0, None, None, None),
    )
    held = (
        PartitionReplicas("train/0", 100, ("a",)),
        PartitionReplicas("train/1", 50, ("a", "b")),
        PartitionReplicas("eval/0", 10, ("c",)),
    )
    shown = gather([search(visits=visits, held=held, moved=((13.0, 7, 0, 0),), time=30.0, best_job="2")], "hops")
    first, second = shown.slots
    assert (first.slot, first.partitions) == ("a/0", ("eval/0", "train/0"))
    assert (first.training, first.evaluating, first.starting, first.idle) == (4.0, 1.5, 1.5, 13.0)
    assert (second.partitions, second.training) == (("train/1", "train/10"), 7.0)
    assert (second.hopping, second.starting) == (1.0, 9.0)
    assert (shown.time, shown.hops, shown.best) == (30.0, 1, "2")
    assert [visit.start for visit in shown.visits] == [10.0, 12.0, 16.0, 21.0]
    assert shown.storage == Storage(data=160, held=210, copies=3 * 160, nodes=3)
    assert document(shown)["storage"]["copies"] == 480


def test_without_partitioned_data_there_are_no_hops() -> None:
    with pytest.raises(InvalidInput, match="it has no visits of partitioned data, which --kind hops shows"):
        gather([search()], "hops")
    with pytest.raises(NotFound, match="it has no partitioned data; --kind gantt shows what ran where"):
        gather([search(visits=(), held=())], "hops")
    with pytest.raises(NotFound, match="nothing has run on its data yet"):
        gather([search(visits=(), held=(PartitionReplicas("train/0", 1, ("a",)),))], "hops")


# ------------------------------------------------------------------------------------------------------------------ kinds


def test_the_kind_follows_from_the_input() -> None:
    runs = (PlottedRun("a/0", "1", 1, 0.0, 1.0, "UNTIL"),)
    assert default_kind([search(curves=(curve("1", 0.1),), runs=runs)]) == "curves"
    assert default_kind([search(runs=runs)]) == "gantt"
    assert default_kind(reached("pop", 1.0)) == "boxes"
    assert default_kind(reached("pop", 1.0, 2.0)) == "boxes"
    assert default_kind([*reached("pop", 1.0), *reached("pop", 1.0, slots=4)]) == "capacity"
    # one of the two is a live experiment
    assert default_kind([*reached("pop", 1.0, slots=None), *reached("pop", 1.0, slots=4)]) == "boxes"
    assert default_kind([search(), search()]) == "durations"


def test_a_kind_that_is_not_or_does_not_fit_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"no kind 'pie' of plot; there are: curves, durations,"):
        gather([search()], "pie")
    with pytest.raises(InvalidInput, match=r"--over goes with --kind curves, durations; gantt"):
        gather([search()], "gantt", "time")


def test_every_kind_shows_values_of_a_class_of_its_own() -> None:
    assert len({kind.shows for kind in KINDS.values()}) == len(KINDS)
