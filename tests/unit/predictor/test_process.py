"""Tests of the error messages that a process with a predictor sends about errors in the predictor's code."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hopyard._runtime.processes import worker_process
from hopyard.predictor import Curve, Prediction, Predictor, Question
from hopyard.predictor.process import begin
from hopyard.predictor.wire import question_to_json
from hopyard.v1 import resource_manager_pb2 as wire

pytestmark = pytest.mark.quick

QUESTION = question_to_json(Question(Curve((1, 2), (0.1, 0.2)), horizon=4)).encode()


class Raising(Predictor):
    """A predictor that raises an error with a given text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def predict(self, question: Question) -> Prediction:
        raise ValueError(self._text)


def answered(text: str) -> dict[str, Any]:
    """Return the answer of the process to a question at which its predictor raises an error with this text."""
    wanted = {"name": f"{__name__}:Raising", "parameters": {"text": text}, "path": []}
    asked = iter([json.dumps(wanted).encode(), QUESTION])
    said: list[dict[str, Any]] = []
    worker_process.serve(begin, lambda: next(asked, None), said.append)
    assert said[0] == {"reads": "nothing"}
    return said[1]


def test_an_error_with_half_a_character_can_be_sent() -> None:
    error = answered("half \ud800 of one")["error"]
    assert error.startswith("Raising: ValueError: half \\ud800 of one (test_process.py:")
    assert wire.NodeAnswer(ticket="e/1", error=error).error == error


@pytest.mark.merge
def test_an_error_of_any_length_is_cut() -> None:
    said = answered("long" * 10_000_000)
    assert said["error"].startswith("Raising: ValueError: longlong")
    assert len(json.dumps(said)) < 10_000
