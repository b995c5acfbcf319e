"""Tests of what the death of one node costs the models of a search with `mop`: the units that are trained again.

The cost depends on `snapshot.ship_every`. docs/hopping.md and docs/simulation.md state it.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

from hopyard_simulator import Faults, Partitions, Result, RunInterval, simulate
from hopyard_simulator.node import Agent
from tests.unit.simulator.test_partitions import workload

NODES = ("node1", "node2", "node3")
TIMES = (8.8, 13.2, 17.5)


def kill(node: str, at: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a node die at a time, once in the next simulation."""
    join = Agent.join

    def joins(self: Agent) -> None:
        join(self)
        if self.node == node and self.world.timeline.now < at:
            self.world.timeline.at(at, self._fail)

    monkeypatch.setattr(Agent, "join", joins)


def searched(node: str, at: float, replicas: int, ship_every: int | None = None) -> Result:
    """Simulate a search of four models over two epochs of six partitions on three nodes, of which one dies and comes back empty."""
    given = {"gang_below": 0} if ship_every is None else {"gang_below": 0, "ship_every": ship_every}
    with pytest.MonkeyPatch.context() as monkeypatch:
        kill(node, at, monkeypatch)
        return simulate(
            workload(4, 2, (4.0, 6.0, 9.0)),
            "mop",
            slots=len(NODES),
            data=Partitions(6, 0, replicas),
            faults=Faults(downtime=5.0),
            parameters=given,
            details=True,
        )


def units_by_job(result: Result) -> dict[str, list[RunInterval]]:
    """Return the training units of each job in their order."""
    assert result.runs is not None
    found = defaultdict[str, list[RunInterval]](list)
    for run in sorted(result.runs, key=lambda run: run.attempt):
        if run.mode == "TRAIN":
            found[run.job].append(run)
    return found


def again(result: Result) -> list[int]:
    """Return for each model that fell back how many completed units it trained again."""
    found = []
    for units in units_by_job(result).values():
        reached = 0
        for unit in units:
            if unit.position < reached:
                found.append(reached - unit.position)
            reached = unit.position + unit.trained if unit.reason == "UNTIL" else unit.position
    return found


def most(replicas: int, ship_every: int | None = None) -> int:
    """Return the largest number of completed units that a model trained again, over the deaths of each node at each time."""
    found = [0]
    for node in NODES:
        for at in TIMES:
            result = searched(node, at, replicas, ship_every)
            assert set((result.states or {}).values()) == {"COMPLETED"}
            found += again(result)
    return max(found)


@pytest.mark.merge
@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_by_default_one_death_costs_a_model_no_completed_unit(replicas: int) -> None:
    assert most(replicas) == 0


@pytest.mark.merge
@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("ship_every", [2, 3])
def test_with_every_nth_snapshot_in_the_store_it_costs_less_than_n_completed_units(
    replicas: int, ship_every: int
) -> None:
    assert 0 < most(replicas, ship_every) < ship_every


@pytest.mark.merge
@pytest.mark.parametrize(("replicas", "units"), [(1, 3), (2, 4), (3, 2)])
def test_without_snapshots_in_the_store_it_costs_up_to_four_units(replicas: int, units: int) -> None:
    assert most(replicas, 0) == units


@pytest.mark.quick
def test_the_result_says_which_model_visited_which_partition() -> None:
    """Check that each model completes each partition once in each epoch, in spite of a death."""
    result = searched("node2", 8.8, 2)
    assert any(run.reason == "LOST" for run in result.runs or ())
    for units in units_by_job(result).values():
        visited = [unit.partition for unit in units if unit.reason == "UNTIL"]
        assert [sorted(visited[:6]), sorted(visited[6:])] == [[f"train/{number}" for number in range(6)]] * 2
