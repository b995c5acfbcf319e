"""Test of `benchmarks/chaos.py`: short rounds with fixed seeds, in which nothing is lost, doubled or changed."""

from __future__ import annotations

from pathlib import Path

import chaos
import pytest

from tests.timing import scaled, stretch


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("search", "seed"),
    [
        pytest.param("sha", 2, id="sha"),
        pytest.param("stage_tree", 1, id="stage-tree", marks=pytest.mark.nightly),
        pytest.param("mop", 3, id="mop", marks=pytest.mark.nightly),
    ],
)
async def test_a_disturbed_search_records_what_the_undisturbed_one_does(search: str, seed: int, tmp_path: Path) -> None:
    """Check that all disturbances happen while the search runs, and that none of them changes, loses or doubles a report."""
    bench = chaos.Bench(chaos.Settings(length=scaled(8.0), gap=scaled(0.8), keep=tmp_path, stretch=stretch()))
    row = await bench.round(search, seed)
    assert row.findings == []
    assert row.counts.total() + row.missed == row.planned >= 2
    assert row.positions > 500
    assert row.kept == ""
    (summed, _) = chaos.summary([row])
    assert (summed["wrong"], summed["doubled"], summed["missing"], summed["findings"]) == (0, 0, 0, 0)
