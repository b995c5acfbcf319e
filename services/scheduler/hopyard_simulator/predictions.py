"""Predictions inside simulations: the predictor itself, asked once for each question."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

from hopyard.errors import InvalidInput
from hopyard.predictor import Curve, Predictor, Question
from hopyard.predictor.factory import new_predictor
from hopyard.predictor.invoke import predicted
from hopyard_engine.core.actions.prediction_requests import thinned
from hopyard_engine.core.effects import AskOutside
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.curve_history import others, state_of

_MOST: Final = 10_000
"""About 20 kB each, with a hundred positions to come."""


class PredictionCache:
    """Predictions by their questions; shared, several simulations ask a predictor once. The oldest of very many are forgotten."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, dict[str, Any]] = OrderedDict()
        self._made: dict[str, Predictor] = {}
        self.asked = 0
        self.computed = 0

    def predictor(self, name: str, parameters: Mapping[str, Any]) -> Predictor:
        """The predictor of a name, made once, so that what it said counts in every simulation.

        Raises:
            InvalidInput: There is none of that name, or it does not take the parameters.
        """
        key = json.dumps([name, parameters], sort_keys=True, default=str)
        if key not in self._made:
            self._made[key] = new_predictor(name, parameters)
        return self._made[key]

    def of(self, predictor: Predictor, question: Question) -> dict[str, Any]:
        """The prediction as plain data.

        Raises:
            InvalidInput: It has no prediction; the message says why (`predicted`).
        """
        self.asked += 1
        key = (predictor, _key(question))
        found = self._known.get(key)
        if found is None:
            self.computed += 1
            found = self._known[key] = predicted(predictor, question)
            if len(self._known) > _MOST:
                self._known.popitem(last=False)
        return found


class SimulatedPredictions:
    """Answers a simulation's questions to its predictor.

    Args:
        predictor: Gives it, when it is asked for the first time; None: every question is answered with an error.
        foreseen: Predictions that were made before.
    """

    def __init__(self, predictor: Callable[[], Predictor] | None, foreseen: PredictionCache) -> None:
        self._predictor = predictor
        self._foreseen = foreseen
        self._curves: dict[str, tuple[tuple[int, bool, object], Curve]] = {}

    def answer(self, stream: Stream, question: AskOutside) -> dict[str, Any]:
        """A prediction as the journal of a live experiment has it.

        Raises:
            InvalidInput: There is no predictor, or it cannot say anything.
        """
        if self._predictor is None:
            raise InvalidInput("the simulation has no predictor")
        predictor = self._predictor()
        asked = question.payload["question"]
        reads = predictor.reads == "curves"
        beside = (
            tuple(self._curve(stream, job) for job in others(stream, stream.jobs[question.payload["job"]]))
            if reads
            else ()
        )
        curve = asked["curve"]
        return self._foreseen.of(
            predictor,
            Question(
                Curve(tuple(curve["positions"]), tuple(curve["values"]), curve["hyperparameters"]),
                asked["horizon"],
                asked["mode"],
                asked["target"],
                asked["low"],
                asked["high"],
                beside,
                asked["seed"],
            ),
        )

    def _curve(self, stream: Stream, job: Job) -> Curve:
        state = state_of(job)
        made = self._curves.get(job.id)
        if made is not None and made[0] == state:
            return made[1]
        metric = stream.settings.metric
        points = [(point.position, point.metrics) for point in stream.curve(job)]
        known = thinned([(position, metrics[metric]) for position, metrics in points if metric in metrics])
        curve = Curve(
            tuple(position for position, _ in known),
            tuple(value for _, value in known),
            job.hyperparameters or {},
            job.state.ended,
        )
        self._curves[job.id] = (state, curve)
        return curve


def _key(question: Question) -> bytes:
    """A question in a few bytes: very many are remembered, each with hundreds of curves."""
    told = hashlib.sha256()
    scale = (
        len(question.others),
        question.horizon,
        question.mode,
        question.target,
        question.low,
        question.high,
        question.seed,
    )
    told.update(repr(scale).encode())
    for curve in (question.curve, *question.others, *question.earlier):
        given = json.dumps(curve.hyperparameters, sort_keys=True, default=str).encode()
        told.update(f"/{len(curve.positions)}/{len(given)}/{curve.ended}/".encode())
        told.update(array("q", curve.positions).tobytes())
        told.update(array("d", curve.values).tobytes())
        told.update(given)
    return told.digest()
