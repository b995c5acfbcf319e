"""Tests of model hopper parallelism in the simulator: the core and the policy `mop`, with partitions on the nodes."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from hopyard.errors import InvalidInput
from hopyard.traces import Trace
from hopyard_simulator import Costs, Faults, Fleet, Partitions, Result, TraceWorkload, simulate

pytestmark = pytest.mark.quick


def workload(jobs: int, epochs: int, seconds: Sequence[float] = (4.0,)) -> TraceWorkload:
    """Return jobs whose values increase with the epoch; `seconds` are the times of an epoch, job by job."""
    return TraceWorkload(
        Trace(
            str(job),
            {"x": job},
            "accuracy",
            "max",
            tuple(job / 100 + epoch / 10 for epoch in range(1, epochs + 1)),
            (seconds[job % len(seconds)],) * epochs,
        )
        for job in range(1, jobs + 1)
    )


def trained(result: Result) -> Counter[tuple[str, str]]:
    """Return the number of units by job and node."""
    assert result.runs is not None
    return Counter((run.job, run.slot.split("/")[0]) for run in result.runs if run.reason == "UNTIL" and run.trained)


def test_equal_models_keep_all_slots_at_work() -> None:
    result = simulate(
        workload(4, 3), "mop", slots=4, data=Partitions(train=4), parameters={"barrier": True}, details=True
    )
    assert result.time == pytest.approx(4 * 3 * 4.0 / 4)
    assert result.utilisation == pytest.approx(1.0)
    assert set(result.states.values() if result.states else ()) == {"COMPLETED"}
    assert trained(result) == Counter({(str(job), f"node{node}"): 3 for job in range(1, 5) for node in range(1, 5)})


def test_models_are_evaluated_after_each_epoch_and_what_units_measure_before_is_not_known() -> None:
    result = simulate(workload(2, 2), "mop", slots=2, data=Partitions(2, 2), details=True)
    assert result.curves is not None
    assert result.runs is not None
    for job, curve in result.curves.items():
        values = {position: value for _, position, value in curve}
        assert [position for position, value in values.items() if value is not None and not math.isnan(value)] == [2, 4]
        evaluations = [run for run in result.runs if run.job == job and not run.trained]
        assert len(evaluations) == 2 * 2
    assert result.best == pytest.approx(0.02 + 0.2)


@pytest.mark.parametrize(
    ("costs", "seconds"), [(Costs(), 4 / 3), (Costs(evaluation=0.5), 0.5), (Costs(evaluation=0.0), 0.0)]
)
def test_an_evaluation_takes_a_third_of_a_unit_or_what_is_given(costs: Costs, seconds: float) -> None:
    """Check one job of two epochs on one slot: two units of 4 s, each followed by an evaluation on one partition."""
    result = simulate(workload(1, 2), "mop", slots=1, data=Partitions(1, 1), costs=costs, details=True)
    spans = [one.end - one.start for one in sorted(result.runs or (), key=lambda one: one.start)]
    assert spans == pytest.approx([4.0, seconds, 4.0, seconds])
    assert result.time == pytest.approx(2 * (4.0 + seconds))


@pytest.mark.parametrize(("speedup", "seconds"), [(float, 1.0), (lambda slots: 1 + (slots - 1) / 6, 4 / 1.5)])
def test_one_model_of_four_slots_trains_its_epochs_on_all_of_them(
    speedup: Callable[[int], float], seconds: float
) -> None:
    result = simulate(workload(1, 3), "mop", slots=4, data=Partitions(4), speedup=speedup, details=True)
    assert result.time == pytest.approx(3 * seconds)
    assert (result.iterations, result.states) == (12, {"1": "COMPLETED"})
    assert result.curves is not None
    assert [position for _, position, _ in result.curves["1"]] == [4, 8, 12]


@pytest.mark.merge
def test_uneven_models_on_uneven_slots_come_near_what_cannot_be_beaten() -> None:
    seconds = (4.0, 8.0, 16.0, 24.0)
    result = simulate(
        workload(16, 4, seconds), "mop", fleet=Fleet(4, speeds=(1.0, 2.0, 1.0, 1.5)), data=Partitions(4), details=True
    )
    load = sum(4 * seconds[job % 4] / 4 for job in range(1, 17))
    assert result.time <= 1.03 * load


@pytest.mark.merge
def test_nodes_that_fail_come_back_with_their_partitions() -> None:
    for replicas in (1, 2):
        result = simulate(
            workload(4, 4),
            "mop",
            slots=3,
            data=Partitions(3, 1, replicas),
            faults=Faults(node_failures=0.02, downtime=5.0),
            parameters={"max_losses": 1000},
            seed=3,
            details=True,
        )
        assert set(result.states.values() if result.states else ()) == {"COMPLETED"}
        assert sum(trained(result).values()) >= 4 * 4 * 3


def test_numbers_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidInput, match="train of the data must be a whole number of at least 1, found 0"):
        Partitions(0)
    with pytest.raises(InvalidInput, match="3 replicas need as many nodes, found 2"):
        simulate(workload(1, 1), "mop", slots=2, data=Partitions(2, 0, 3))
    with pytest.raises(
        InvalidInput, match=r"policy mop sends jobs to partitioned data: say how they lie, such as --data"
    ):
        simulate(workload(1, 1), "mop", slots=2)


@pytest.mark.parametrize("barrier", [False, True])
def test_with_fewer_slots_than_hold_the_data_it_goes_from_node_to_node(barrier: bool) -> None:
    limited = {"concurrency": 1, "barrier": barrier}
    result = simulate(workload(3, 2), "mop", slots=2, data=Partitions(4, 2), parameters=limited, details=True)
    assert result.runs is not None
    assert set(result.states.values() if result.states else ()) == {"COMPLETED"}
    assert trained(result) == Counter({(str(job), f"node{node}"): 4 for job in range(1, 4) for node in (1, 2)})
    nodes = [run.slot.split("/")[0] for run in sorted(result.runs, key=lambda run: run.start)]
    moves = sum(before != after for before, after in itertools.pairwise(nodes))
    # Each job trains an epoch on one node, then on the other; evaluations may move it back.
    assert moves <= 2 * 2 * 3
    # Slots never wait: an epoch of a job takes 4 s, and its evaluation on two partitions a third of a unit of 1 s each.
    assert result.time == pytest.approx(3 * 2 * (4.0 + 2 / 3))


def test_slots_on_nodes_without_data_are_left_to_others() -> None:
    result = simulate(workload(2, 1), "mop", fleet=Fleet(4), data=Partitions(2), details=True)
    assert {node for _, node in trained(result)} == {"node1", "node2"}


@pytest.mark.merge
def test_plans_of_a_solver_come_in_virtual_time_and_the_same_each_time() -> None:
    def searched(**more: float) -> Result:
        return simulate(
            workload(4, 3, (4.0, 6.0, 10.0)),
            "mop",
            fleet=Fleet(3, speeds=(1.0, 2.0, 1.0)),
            data=Partitions(3),
            parameters={"scheduler": "milp", "pilot": True},
            costs=Costs(**more),
            details=True,
        )

    at_once, later = searched(), searched(solution=2.0)
    assert at_once == searched()
    for result in (at_once, later):
        assert set(result.states.values() if result.states else ()) == {"COMPLETED"}
        assert sum(trained(result).values()) == 4 * 3 * 3
    # Times are known, and the plan of each epoch is optimal; only training across the barrier could be faster.
    assert at_once.time <= 1.05 * max(sum((4.0, 6.0, 10.0)[job % 3] for job in range(1, 5)), 30.0)
