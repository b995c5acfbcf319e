"""Tests of the rungs that `hopyard rungs` shows: the best job of each."""

from __future__ import annotations

import math

import pytest

from hopyard.policy.rungs import Rung, RungEntry
from hopyard_tools.commands.rungs import Summary

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_rung_on_which_nobody_has_a_finite_value_has_no_best(value: float) -> None:
    assert Summary.of(Rung(0, 0, 4, (RungEntry("1", value),))).best is None


def test_the_best_of_a_rung_is_its_first() -> None:
    found = Summary.of(Rung(0, 0, 4, (RungEntry("2", 0.5, promoted=True), RungEntry("1", math.nan))))
    assert (found.best, found.cut_off, found.promoted) == (0.5, 0.5, 1)
