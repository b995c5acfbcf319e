"""Evaluates every predictor on every curve, in this process or in several."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from curve_scores.baselines import BaseRate, LastAndIncrements, LastValue, RandomWalk
from curve_scores.data import ACCURACY, HISTORY, CurveSet, curve_sets
from curve_scores.scores import Score, means, reliability, score
from hopyard._common.plugins import PREDICTORS, load_plugin
from hopyard.predictor import Predictor, Question

BASELINES: Final[Mapping[str, Callable[[CurveSet], Predictor]]] = {
    "base rate": lambda curves: BaseRate(curves.finals),
    "last value": lambda _: LastValue(),
    "random walk": lambda _: RandomWalk(),
    "last + increments": lambda _: LastAndIncrements(),
}
PARTS: Final = (0.1, 0.2, 0.4)
_CHUNK: Final = 10


@dataclass(frozen=True)
class Plan:
    """What is evaluated.

    Attributes:
        file: The file of curves.
        rows: Evaluated rows of the accuracy sets.
        every: Predict only every `every`-th of these rows.
        draws: Number of histories with which each row is predicted.
        predictors: Names of predictors, `module:Class` or names of baselines.
        parameters: Parameters of predictors, by the predictor's name.
        history: Number of finished curves from which a predictor learns.
        earlier: Whether predictors also get curves of an earlier experiment; see `CurveSet.histories`.
    """

    file: Path
    rows: range
    every: int
    draws: int
    predictors: tuple[str, ...]
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    history: int = HISTORY
    earlier: Literal["fitting", "strange"] | None = None

    def build(self, name: str, curves: CurveSet) -> Predictor:
        """Return a new predictor or baseline by its name, for a set of curves."""
        if name in BASELINES:
            return BASELINES[name](curves)
        found = load_plugin(PREDICTORS, name, Predictor)
        assert isinstance(found, type)
        predictor: Predictor = found(**self.parameters.get(name, {}))
        return predictor


@dataclass(frozen=True)
class _Unit:
    predictor: str
    set_index: int
    part: float
    draw: int
    rows: tuple[int, ...]


def evaluate(plan: Plan, jobs: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """Evaluate a plan in `jobs` processes. Except for CPU times, the result does not depend on the number of processes.

    Args:
        plan: What is evaluated.
        jobs: Number of processes.
        progress: Called with a message when the evaluation of another predictor, set or part begins.

    Returns:
        `scores`: one row per predictor, set and part of the curve. `means`: one row per predictor and part, with the means over the
            accuracy sets
        and data for the reliability plot.
    """
    sets = curve_sets(plan.file, plan.rows, plan.every)
    units = [unit for name in plan.predictors for unit in _units(plan, name, sets)]
    found: dict[tuple[str, str, float], list[Score]] = {}
    for unit, scores in _run(plan, units, jobs):
        key = (unit.predictor, sets[unit.set_index].name, unit.part)
        if key not in found:
            progress(f"{unit.predictor}, {key[1]}, first {unit.part:.0%}")
        found.setdefault(key, []).extend(scores)
    rows = [
        {"predictor": name, "set": curves, "part": part, "scored": len(scores), **means(scores)}
        for (name, curves, part), scores in found.items()
    ]
    return {"scores": rows, "means": [_over_sets(name, part, found) for name in plan.predictors for part in PARTS]}


def _over_sets(name: str, part: float, found: Mapping[tuple[str, str, float], list[Score]]) -> dict[str, Any]:
    per_set = [found[name, curves, part] for curves in ACCURACY]
    numbers = [means(scores) for scores in per_set]
    mean = {key: sum(one[key] for one in numbers) / len(numbers) for key in numbers[0]}
    together = [one for scores in per_set for one in scores]
    return {"predictor": name, "part": part, **mean, "reliability": reliability(together)}


def _units(plan: Plan, name: str, sets: Sequence[CurveSet]) -> Iterator[_Unit]:
    for index, curves in enumerate(sets):
        reads = plan.build(name, curves).reads == "curves" and curves.pool is not None
        for part in PARTS:
            for draw in range(plan.draws if reads else 1):
                for first in range(0, len(curves.scored), _CHUNK):
                    yield _Unit(name, index, part, draw, curves.scored[first : first + _CHUNK])


def _run(plan: Plan, units: Sequence[_Unit], jobs: int) -> Iterator[tuple[_Unit, list[Score]]]:
    if jobs == 1:
        for unit in units:
            yield unit, _score_unit(plan, unit)
        return
    # Predictors use one thread. Further threads of numerical libraries would only disturb the other processes.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    with ProcessPoolExecutor(jobs) as pool:
        yield from zip(units, pool.map(_score_unit, [plan] * len(units), units), strict=True)


_sets = cache(curve_sets)


@cache
def _histories(file: Path, rows: range, every: int, index: int, *how: Any) -> list[Any]:
    return list(_sets(file, rows, every)[index].histories(*how))


def _score_unit(plan: Plan, unit: _Unit) -> list[Score]:
    curves = _sets(plan.file, plan.rows, plan.every)[unit.set_index]
    how = plan.draws, plan.history, plan.earlier
    history, earlier = _histories(plan.file, plan.rows, plan.every, unit.set_index, *how)[unit.draw]
    predictor = plan.build(unit.predictor, curves)
    reads = predictor.reads == "curves"
    scores = []
    for row in unit.rows:
        others = () if not reads else curves.others(row) if history is None else history
        question = Question(
            curve=curves.curve(row, curves.points(unit.part)),
            horizon=curves.length,
            target=curves.target,
            low=curves.low,
            high=curves.high,
            others=others,
            seed=row,
            earlier=earlier if reads else (),
        )
        began = time.process_time()
        prediction = predictor.predict(question)
        seconds = time.process_time() - began
        scores.append(score(prediction, float(curves.values[row, -1]), curves.target, seconds))
    return scores
