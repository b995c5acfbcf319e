"""Predictions in a simulation: a real predictor computes them, once for each distinct request."""

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
"""Maximum number of cached predictions; each takes about 20 kB with a hundred future positions."""


class PredictionCache:
    """A cache of predictions by request. Several simulations may share it. It drops the oldest entries beyond `_MOST`.

    Attributes:
        asked: Number of requested predictions.
        computed: Number of requests that were not in the cache.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, dict[str, Any]] = OrderedDict()
        self._made: dict[str, Predictor] = {}
        self.asked = 0
        self.computed = 0

    def predictor(self, name: str, parameters: Mapping[str, Any]) -> Predictor:
        """Return the predictor with a name and parameters. It is created once, so that all simulations share its cache entries.

        Args:
            name: The name of the predictor, as in an experiment file.
            parameters: Its parameters.

        Raises:
            InvalidInput: The predictor does not exist, or rejects the parameters.
        """
        key = json.dumps([name, parameters], sort_keys=True, default=str)
        if key not in self._made:
            self._made[key] = new_predictor(name, parameters)
        return self._made[key]

    def of(self, predictor: Predictor, question: Question) -> dict[str, Any]:
        """Return the prediction of a predictor as JSON data, from the cache if possible.

        Args:
            predictor: The predictor, as `predictor` returned it.
            question: The request: a learning curve, and the positions to predict.

        Raises:
            InvalidInput: The predictor cannot answer the request. The message has the reason.
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
    """Answers the requests of a simulated policy for predictions.

    Args:
        predictor: Returns the predictor. It is called at each request. None: every request is answered with an error.
        foreseen: The cache of predictions.
    """

    def __init__(self, predictor: Callable[[], Predictor] | None, foreseen: PredictionCache) -> None:
        self._predictor = predictor
        self._foreseen = foreseen
        self._curves: dict[str, tuple[tuple[int, bool, object], Curve]] = {}

    def answer(self, stream: Stream, question: AskOutside) -> dict[str, Any]:
        """Return a prediction, in the form in which the journal of a live experiment contains it.

        Args:
            stream: The simulated stream.
            question: The request of the core.

        Raises:
            InvalidInput: There is no predictor, or it cannot answer the request.
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
    """Return the key of a request in the cache: a hash. Whole requests as keys would be too large, with hundreds of curves each."""
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
