"""The figures of the benchmarks of ASHA are what they say."""

from __future__ import annotations

import argparse

import pytest
from asha_rivals import figures
from asha_stragglers import RUNGS, Search, cells, run
from rivals.task import loss


def test_rivals_are_measured_by_what_they_have_trained() -> None:
    given = argparse.Namespace(configurations=2, R=3, workers=2)
    trained = [
        ("100", 0, 1, 10.0, 11.0),
        ("100", 0, 2, 11.5, 12.5),
        ("100", 0, 3, 12.7, 14.0),
        ("100", 1, 2, 14.5, 15.0),  # another run: what lies between is no gap
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


def test_the_first_at_R_comes_after_all_rungs_from_scratch_and_after_R_if_resumed() -> None:
    searches = [
        Search(mode, 0.0, 0.0, name, 0, 25, 400.0) for mode in ("scratch", "resumed") for name in ("SHA", "ASHA")
    ]
    results = [run(search) if search.algorithm == "ASHA" else (0, None) for search in searches]
    by = {(cell["mode"], cell["algorithm"]): cell for cell in cells(searches, results)}
    assert RUNGS[-1] <= by["resumed", "ASHA"]["first"] < sum(RUNGS) <= by["scratch", "ASHA"]["first"] < 400.0
    assert (by["resumed", "SHA"]["first"], by["resumed", "SHA"]["never"]) == (400.0, 1)
