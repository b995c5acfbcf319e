"""The pooled predictor, and a file that says when it was asked what."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from hopyard.predictor import Prediction, Question
from hopyard_curves.pooled import PooledPredictor


class Recorded(PooledPredictor):
    """Writes a line for each question before it answers it.

    Args:
        log: The file, of all processes.
        seconds: How long an answer takes, at least.
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
