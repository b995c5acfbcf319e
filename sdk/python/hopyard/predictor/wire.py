"""Conversion of questions and predictions to and from JSON, for messages between scheduler and node, and for the journal.

NaN and infinite values in a curve are written as `NaN` and `Infinity`, as Python's json module does; they are not valid
JSON.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hopyard.errors import InvalidInput
from hopyard.predictor.base import LEVELS, Curve, Prediction, Question

_SLACK: Final = 1e-9
"""Tolerance for probabilities outside [0, 1] due to rounding."""


def curve_to_wire(curve: Curve) -> dict[str, Any]:
    """Return a curve as plain data that can be written as JSON: a dict with the attributes of `Curve`."""
    return {
        "positions": list(curve.positions),
        "values": list(curve.values),
        "hyperparameters": dict(curve.hyperparameters),
        "ended": curve.ended,
    }


def question_to_json(question: Question) -> str:
    """Return a question as one line of JSON, which `question_from_json` reads."""
    fields = {
        "curve": curve_to_wire(question.curve),
        "horizon": question.horizon,
        "mode": question.mode,
        "target": question.target,
        "low": question.low,
        "high": question.high,
        "others": [curve_to_wire(curve) for curve in question.others],
        "earlier": [curve_to_wire(curve) for curve in question.earlier],
        "seed": question.seed,
    }
    return json.dumps(fields, separators=(",", ":"))


def question_from_json(text: str | bytes) -> Question:
    """Create a question from the text that `question_to_json` returned.

    Raises:
        InvalidInput: The text is not a question.
    """
    try:
        found = json.loads(text)
        return Question(
            curve=_curve(found["curve"]),
            horizon=int(found["horizon"]),
            mode="min" if found["mode"] == "min" else "max",
            target=found["target"],
            low=found["low"],
            high=found["high"],
            others=tuple(_curve(one) for one in found.get("others", ())),
            earlier=tuple(_curve(one) for one in found.get("earlier", ())),
            seed=int(found["seed"]),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidInput(f"this is no question to a predictor: {type(error).__name__}: {error}") from error


def prediction_to_wire(prediction: Prediction) -> dict[str, Any]:
    """Return a prediction as plain data that can be written as JSON."""
    return {
        "positions": list(prediction.positions),
        "mean": list(prediction.mean),
        "deviation": list(prediction.deviation),
        "reaches": list(prediction.reaches),
        "final": list(prediction.final),
    }


def prediction_from_wire(found: object) -> Prediction:
    """Create a prediction from `found`, the data that `prediction_to_wire` returned.

    Only the types of the fields are checked; `check_prediction` checks the values.

    Raises:
        InvalidInput: The data is not a prediction. The message names the field.
    """
    if not isinstance(found, Mapping):
        raise InvalidInput(f"a prediction is a mapping, found {type(found).__name__}")
    return Prediction(
        positions=tuple(_positions(found.get("positions"))),
        mean=_numbers(found, "mean"),
        deviation=_numbers(found, "deviation"),
        reaches=_numbers(found, "reaches"),
        final=_numbers(found, "final"),
    )


def check_prediction(prediction: object, question: Question) -> Prediction:
    """Check that the answer to `question` fulfils the contract of `Prediction`, and return it with Python's number types.

    Probabilities that are outside [0, 1] by a rounding error are clipped.

    Raises:
        InvalidInput: The answer is invalid. The message names the field, what was found and what is allowed.
    """
    if not isinstance(prediction, Prediction):
        raise InvalidInput(f"predict returned {type(prediction).__name__}; a hopyard.predictor.Prediction is needed")
    last = max(question.curve.positions, default=0)
    positions = tuple(int(position) for position in prediction.positions)
    length = len(positions)
    rises = all(before < after for before, after in itertools.pairwise((last, *positions)))
    if not rises or (positions and positions[-1] != question.horizon) or (not positions and last < question.horizon):
        raise InvalidInput(
            f"positions must rise from above {last} to the horizon {question.horizon}, found {_shown(positions)}"
        )
    mean = _finite("mean", prediction.mean, length)
    deviation = _finite("deviation", prediction.deviation, length)
    if any(value < 0 for value in deviation):
        raise InvalidInput(f"deviation must be >= 0, found {min(deviation):g}")
    reaches = _finite("reaches", prediction.reaches, length if question.target is not None else 0)
    if any(not -_SLACK <= value <= 1 + _SLACK for value in reaches):
        raise InvalidInput(f"reaches are chances in 0..1, found {min(reaches):g}..{max(reaches):g}")
    final = _finite("final", prediction.final, len(LEVELS) if positions else 0)
    if any(before > after for before, after in itertools.pairwise(final)):
        raise InvalidInput("final are quantiles, which never fall")
    return Prediction(positions, mean, deviation, tuple(min(max(value, 0.0), 1.0) for value in reaches), final)


def _curve(found: Mapping[str, Any]) -> Curve:
    return Curve(
        tuple(found["positions"]),
        tuple(float(value) for value in found["values"]),
        found.get("hyperparameters", {}),
        bool(found.get("ended", False)),
    )


def _positions(found: object) -> list[int]:
    if not isinstance(found, list | tuple) or any(type(one) is not int for one in found):
        raise InvalidInput(f"positions: whole numbers are needed, found {found!r:.200}")
    return list(found)


def _numbers(found: Mapping[str, object], name: str) -> tuple[float, ...]:
    values = found.get(name, ())
    if not isinstance(values, list | tuple) or any(type(one) not in (int, float) for one in values):
        raise InvalidInput(f"{name}: numbers are needed, found {values!r:.200}")
    return _floats(name, values)


def _finite(name: str, values: Sequence[float], length: int) -> tuple[float, ...]:
    try:
        found = _floats(name, values)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} must be {length} numbers, found {values!r:.200}") from error
    if len(found) != length:
        raise InvalidInput(f"{name} must be {length} numbers, found {len(found)}")
    strange = next((value for value in found if not math.isfinite(value)), None)
    if strange is not None:
        raise InvalidInput(f"{name} must be finite, found {strange:g}")
    return found


def _floats(name: str, values: Sequence[Any]) -> tuple[float, ...]:
    try:
        return tuple(float(value) for value in values)
    except OverflowError as error:
        raise InvalidInput(f"{name}: found an integer that a double cannot hold") from error


def _shown(positions: Sequence[int]) -> str:
    return f"{positions[0]}..{positions[-1]} ({len(positions)})" if positions else "none"
