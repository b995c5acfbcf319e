"""Tests of plots of simulated searches over partitioned data: `hops`, `curves` and `gantt`, from the file that a simulation prints."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hopyard.errors import InvalidInput, NotFound
from hopyard.plots import figure, gather, read
from hopyard.plots.data.hops import HopPlot
from hopyard.plots.model import Search
from hopyard_simulator import Costs, Partitions, simulate
from tests.unit.simulator.test_partitions import workload


def searched(tmp_path: Path, *, details: bool = True, partitions: bool = True) -> Search:
    """Simulate two models, two epochs and two partitions on two nodes, and read the result as a plot does."""
    data = Partitions(2, 2) if partitions else None
    result = simulate(
        workload(2, 2), "mop" if partitions else "default", slots=2, data=data, costs=Costs(resume=0.5), details=details
    )
    path = tmp_path / "mop.json"
    path.write_text(json.dumps(result.plain()))
    (search,) = read(path)
    return search


def test_hops_of_a_simulation(tmp_path: Path) -> None:
    """Check visits, times and moves by hand: a unit takes 2 s, an evaluation on one partition 2/3 s, a resumed run 0.5 s more."""
    plot: HopPlot = gather([searched(tmp_path)], "hops")
    trained = [(visit.job, visit.node, visit.partition) for visit in plot.visits if not visit.evaluates]
    assert trained[:4] == [
        ("1", "node1", "train/0"), ("2", "node2", "train/1"), ("2", "node1", "train/0"), ("1", "node2", "train/1"),
    ]  # fmt: skip
    assert sorted(trained) == sorted(2 * trained[:4])  # Each model visits each partition once in each of two epochs.
    assert sum(visit.evaluates for visit in plot.visits) == 2 * 2 * 2
    assert all(visit.began == visit.start + (0.5 if visit.got or visit.start else 0.0) for visit in plot.visits)
    assert plot.hops == sum(visit.got for visit in plot.visits) == plot.moved[-1][1]
    assert (plot.moved[-1][2], plot.moved[-1][3]) == (
        0,
        8,
    )  # By default the store gets each of the eight units' snapshots.
    for use in plot.slots:
        assert use.training == pytest.approx(4 * 2.0)
        assert use.evaluating == pytest.approx(4 * 2 / 3)
        assert use.hopping + use.starting == pytest.approx(7 * 0.5)
        assert use.idle == pytest.approx(0.0)
    assert (plot.storage.data, plot.storage.held, plot.storage.nodes) == (4, 4, 2)


def test_curves_of_a_simulation_have_one_point_for_each_position(tmp_path: Path) -> None:
    search = searched(tmp_path)
    assert search.curves is not None
    for curve in search.curves:
        assert curve.positions.tolist() == [1, 2, 3, 4]
        assert np.isfinite(curve.values).tolist() == [False, True, False, True]
    assert {run.mode for run in search.runs or ()} == {"TRAIN", "EVALUATE"}


@pytest.mark.merge
@pytest.mark.parametrize("kind", ["hops", "curves", "gantt"])
def test_a_simulation_can_be_drawn(tmp_path: Path, kind: str) -> None:
    assert figure(gather([searched(tmp_path)], kind)).axes


def test_a_simulation_without_details_or_data_has_no_hops(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="hopyard simulate --json --details prints them"):
        gather([searched(tmp_path, details=False)], "hops")
    with pytest.raises(NotFound, match="it has no partitioned data"):
        gather([searched(tmp_path, partitions=False)], "hops")
