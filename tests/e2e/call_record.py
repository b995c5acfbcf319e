"""The pooled predictor with a file that records when it was asked which question."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from hopyard.predictor import Prediction, Question
from hopyard_curves.pooled import PooledPredictor


class Recorded(PooledPredictor):
    """Appends a line with time and seed of each question to a file before it answers.

    Args:
        log: The file, which all processes share.
        seconds: The least time that an answer takes.
    """

    def __init__(self, log: str, seconds: float = 0.0, **parameters: Any) -> None:
        super().__init__(**parameters)
        self.log = log
        self.seconds = seconds

    def predict(self, question: Question) -> Prediction:
        with Path(self.log).open("ab", buffering=0) as file:
            file.write(json.dumps({"at": time.time(), "seed": question.seed}).encode() + b"\n")
        time.sleep(self.seconds)
        return super().predict(question)
