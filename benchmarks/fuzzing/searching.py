"""Simulates random searches, and checks them."""

from __future__ import annotations

import importlib
import math
import traceback
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from fuzzing.drawing import Case
from fuzzing.watching import Watched
from fuzzing.workload import Configuration, Reporting
from hopyard.errors import InvalidInput
from hopyard.predictor import LEVELS, Prediction, Predictor, Question
from hopyard_engine.core.types import EarlierTrial
from hopyard_engine.policy_host.factory import new_policy
from hopyard_simulator import Result, named, simulate


class Flat(Predictor):
    """Predicts that a curve stays at its mean."""

    def predict(self, question: Question) -> Prediction:
        values = [value for value in question.curve.values if math.isfinite(value)]
        if not values:
            raise InvalidInput("there is nothing finite to predict from")
        if question.curve.positions[-1] >= question.horizon:
            return Prediction((), (), ())
        mean = sum(values) / len(values)
        chance = (0.5,) if question.target is not None else ()
        return Prediction((question.horizon,), (mean,), (0.1,), chance, (mean,) * len(LEVELS))


def run(case: Case) -> None:
    """Simulate a case, and check its invariants.

    Raises:
        InvalidInput: The simulator refuses the case.
        Exception: An invariant is violated, or another error occurred.
    """
    result = _search(case, case.task.configurations, ())
    if case.later:
        _search(replace(case, group=()), case.later, named(result.trained or (), "first"))


def said(case: Case) -> str:
    """Return the error of a case as text; empty: no error. If the case is refused, the text begins with REFUSED."""
    try:
        run(case)
    except InvalidInput as error:
        return f"REFUSED: {error}"
    except Exception as error:  # noqa: BLE001 - whatever is raised is what was found
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({last.filename.rpartition('/')[2]}:{last.lineno})"
    return ""


def _search(case: Case, configurations: Sequence[Configuration], earlier: Sequence[EarlierTrial]) -> Result:
    worlds: list[Watched] = []

    def world(*given: Any, **named: Any) -> Watched:
        quiet = case.undisturbed and not earlier
        worlds.append(Watched(*given, deeds=case.deeds, terms=case.settings, undisturbed=quiet, **named))
        return worlds[-1]

    with patch.object(importlib.import_module("hopyard_simulator.simulate"), "World", world):
        result = simulate(
            Reporting(replace(case.task, configurations=configurations)),
            case.policy,
            fleet=case.fleet,
            parameters={
                **{f"policy.{name}": value for name, value in case.parameters.items()},
                **{f"experiment.{name}": value for name, value in case.terms.items()},
            },
            target=case.target,
            max_time=case.max_time,
            seed=case.seed,
            costs=case.costs,
            faults=case.faults,
            predictor=Flat(),
            from_scratch=case.from_scratch,
            data=case.data,
            group=case.group,
            earlier=earlier,
            space=case.space,
            details=True,
        )
    worlds[0].end(partial(new_policy, case.policy, case.parameters))
    return result
