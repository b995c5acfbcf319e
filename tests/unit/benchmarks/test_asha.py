"""Tests of the figures that the benchmarks of ASHA compute."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from asha_rivals import figures
from asha_stragglers import RUNGS, Search, cells, document, earlier, run
from rivals.task import loss

pytestmark = pytest.mark.quick


def test_rivals_are_measured_by_what_they_have_trained() -> None:
    given = argparse.Namespace(configurations=2, R=3, workers=2)
    trained = [
        ("100", 0, 1, 10.0, 11.0),
        ("100", 0, 2, 11.5, 12.5),
        ("100", 0, 3, 12.7, 14.0),
        ("100", 1, 2, 14.5, 15.0),  # another run: the time between runs is not counted
        ("200", 1, 1, 10.0, 12.0),
    ]
    found = figures("hopyard", trained, given, 8.0, 20.0)
    assert (found["iterations"], found["at_R"]) == (5, 1)
    assert found["best_loss"] == min(loss(0, 3), loss(1, 2))
    assert (found["wall_seconds"], found["all_seconds"]) == (5.0, 12.0)
    assert found["gap_ms"] == pytest.approx(350.0)
    assert found["busy"] == pytest.approx(5.8 / 10.0)
    assert found["lost_ms"] == pytest.approx(4200.0 / 5)
    with pytest.raises(SystemExit, match="hopyard trained 1 of 2 configurations"):
        figures("hopyard", trained[:3], given, 8.0, 20.0)


@pytest.mark.merge
def test_the_first_at_R_comes_after_all_rungs_from_scratch_and_after_R_if_resumed() -> None:
    searches = [
        Search(mode, 0.0, 0.0, name, 0, 25, 400.0) for mode in ("scratch", "resumed") for name in ("SHA", "ASHA")
    ]
    results = {search: run(search) if search.algorithm == "ASHA" else (0, None) for search in searches}
    by = {(cell["mode"], cell["algorithm"]): cell for cell in cells(results)}
    assert RUNGS[-1] <= by["resumed", "ASHA"]["first"] < sum(RUNGS) <= by["scratch", "ASHA"]["first"] < 400.0
    assert (by["resumed", "SHA"]["first"], by["resumed", "SHA"]["never"]) == (400.0, 1)
    first = by["resumed", "ASHA"]["first"]
    # The search stops before its first job reaches R; its runs then have 30 s to end.
    late = Search("resumed", 0.0, 0.0, "ASHA", 0, 25, first - 5.0)
    assert run(late) == (0, None)


def test_a_table_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    output, settings = tmp_path / "cells.json", {"R": 256, "time": 2000.0}
    assert earlier(output, settings) == {}
    done = {
        Search("scratch", 0.1, 0.001, "SHA", 0, 25, 2000.0): (33, 719.25),
        Search("resumed", 0.0, 0.005, "ASHA", 1, 25, 2000.0): (0, None),
    }
    output.write_text(document(done, settings))
    assert earlier(output, settings) == done
    with pytest.raises(ValueError, match=r"cells.json is not of this benchmark; give another file: .*'time': 2000.0"):
        earlier(output, {"R": 256, "time": 100.0})
    output.write_text("[]")
    with pytest.raises(ValueError, match=r"cells.json is not of this benchmark"):
        earlier(output, settings)
