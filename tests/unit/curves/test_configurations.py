"""Tests of what `pooled` predicts from configurations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hopyard.predictor import Curve, Question
from hopyard_curves.pooled import PooledPredictor
from hopyard_curves.pooled.configuration_prior import forecasts

pytestmark = pytest.mark.quick

Floats = NDArray[np.float64]


def configurations(count: int, seed: int = 0) -> list[dict[str, Any]]:
    chance = np.random.default_rng(seed)
    return [
        {
            "lr": float(10 ** chance.uniform(-4, 0)),
            "layers": int(chance.integers(1, 5)),
            "kind": str(chance.choice(["a", "b", "c"])),
            "bias": bool(chance.integers(2)),
            **({"decay": float(chance.random())} if chance.random() < 0.5 else {}),
            "widths": [int(chance.integers(8))],
        }
        for _ in range(count)
    ]


def best_in_between(given: dict[str, Any]) -> float:
    """Return a final value that is best at a learning rate of 0.01 and better with kind b."""
    return float(0.7 - 0.15 * abs(np.log10(given["lr"]) + 2) + 0.1 * (given["kind"] == "b"))


def test_what_matters_is_found_among_what_does_not() -> None:
    given = configurations(90)
    ends = np.array([best_in_between(one) for one in given])
    told = forecasts(given, np.arange(60), ends[:60])
    assert told is not None
    assert np.corrcoef(told[60:], ends[60:])[0, 1] > 0.8
    assert np.corrcoef(told[:60], ends[:60])[0, 1] > 0.8


def test_a_run_is_not_foretold_by_its_own_end() -> None:
    given = configurations(40)
    ends = np.array([best_in_between(one) for one in given])
    told = forecasts(given, np.arange(40), ends)
    changed = forecasts(given, np.arange(40), np.where(np.arange(40) == 7, ends + 0.01, ends))
    assert told is not None
    assert changed is not None
    # Its own end influences only the weights of the hyperparameters.
    assert changed[7] == pytest.approx(told[7], abs=2e-3)


def test_where_configurations_say_nothing_nothing_is_foretold() -> None:
    chance = np.random.default_rng(1)
    found = [forecasts(configurations(40, seed), np.arange(40), chance.normal(size=40)) for seed in range(20)]
    assert sum(one is not None for one in found) <= 4


@pytest.mark.parametrize("ended", [0, 1, 14])
def test_few_ends_foretell_nothing(ended: int) -> None:
    given = configurations(30)
    assert forecasts(given, np.arange(ended), np.array([best_in_between(one) for one in given])[:ended]) is None


def test_no_hyperparameters_and_equal_ends_foretell_nothing() -> None:
    assert forecasts([{}] * 30, np.arange(30), np.linspace(0, 1, 30)) is None
    assert forecasts(configurations(30), np.arange(30), np.ones(30)) is None


@pytest.mark.merge
def test_a_curve_that_has_just_begun_is_foreseen_by_its_configuration() -> None:
    given = configurations(80, 2)
    chance, axis = np.random.default_rng(3), np.arange(1, 31)
    ends = np.array([best_in_between(one) for one in given])[:, None]
    values = 0.1 + (ends - 0.1) * (1 - 0.9 ** (axis - 1)) + chance.normal(0, 0.01, (80, 30))
    curves = [
        Curve(tuple(range(1, 31)), tuple(row.tolist()), one, ended=True) for row, one in zip(values, given, strict=True)
    ]
    predictor = PooledPredictor()
    errors: dict[bool, list[float]] = {True: [], False: []}
    for at in range(15):
        seen = replace(curves[at], positions=(1,), values=curves[at].values[:1], ended=False)
        asked = Question(seen, 30, low=0.0, high=1.0, others=tuple(curves[15:]))
        blind = replace(asked, curve=replace(seen, hyperparameters={}))
        for known, question in ((True, asked), (False, blind)):
            errors[known].append(abs(predictor.predict(question).mean[-1] - values[at, -1]))
    assert np.mean(errors[True]) < 0.5 * np.mean(errors[False])
