"""Tests of the benchmark of overlapping studies: its spaces and its counts."""

from __future__ import annotations

import pytest
import studies

from hopyard_simulator import Costs

pytestmark = pytest.mark.quick


def test_the_merge_rate_of_two_studies_by_hand() -> None:
    def trial(at: int) -> studies.Configuration:
        return {"lr": studies._changing(0.1, 0.01, at), "batch_size": 32}

    found = studies.merge([[trial(4), trial(12)], [trial(12), trial(20)]])
    # One trial trains all 24 units. The one that changes at 4 shares its first 4 units, and the one that changes at 12 its first 12.
    assert (found.total, found.unique) == (4 * 24, 24 + 20 + 12)
    assert found.rate == 96 / 56


@pytest.mark.merge
@pytest.mark.parametrize(("family", "least", "most"), [("high", 1.5, 2.73), ("low", 1.2, 2.1)])
def test_eight_studies_of_144_trials_whose_rates_are_in_the_papers_range(
    family: str, least: float, most: float
) -> None:
    given = studies.studies(family)
    assert [len(study) for study in given] == [144] * 8
    assert all(least <= studies.merge([study]).rate <= most for study in given)


@pytest.mark.merge
@pytest.mark.parametrize("mode", ["later", "once"])
def test_two_small_studies_train_each_position_once(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = studies.studies("high")[:2]
    monkeypatch.setattr(studies, "studies", lambda family: [study[:6] for study in whole])
    (row,) = studies.measure("high", [2], mode, 4, Costs())
    (alone,) = studies.measure("high", [2], "trials", 4, Costs())
    assert (row.executed, alone.executed) == (row.unique, 2 * 6 * 24)
    assert alone.hours / row.hours == pytest.approx(row.q)
    assert studies.compared([alone, row])[1]["saved_by_q"] == pytest.approx(1.0)


def test_it_says_where_something_was_trained_twice_or_too_little_was_saved() -> None:
    def row(mode: str, executed: int, hours: float) -> studies.Row:
        return studies.Row("high", 2, mode, 2.0, 50, executed, hours, 1.0, 0.0)

    assert studies.wrong(studies.compared([row("trials", 100, 100.0), row("once", 50, 51.0)])) == []
    again, less = studies.wrong(studies.compared([row("trials", 100, 100.0), row("once", 51, 51.1)]))
    assert "51 positions were trained, and 50 are different" in again
    assert "high, 2 studies, once: 1.96 times fewer hours are 0.978 q" in less
