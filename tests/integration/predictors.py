"""Predictors for tests: some work, others fail or behave as a predictor must not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar, Literal

from hopyard.predictor import LEVELS, NotPredictableError, Prediction, Predictor, Question


class Toy(Predictor):
    """Predicts that the last value stays the same.

    Args:
        spread: The standard deviation of each predicted value.
        seconds: How long a prediction takes.
    """

    def __init__(self, spread: float = 0.1, seconds: float = 0.0, **parameters: Any) -> None:
        super().__init__(**parameters)
        self.spread = spread
        self.seconds = seconds

    def predict(self, question: Question) -> Prediction:
        time.sleep(self.seconds)
        values = [value for value in question.curve.values if value == value]
        if not values:
            raise NotPredictableError("the curve has no finite value")
        positions = tuple(range(question.curve.positions[-1] + 1, question.horizon + 1))
        target = question.target
        return Prediction(
            positions,
            (values[-1],) * len(positions),
            (self.spread,) * len(positions),
            () if target is None else (float(values[-1] >= target),) * len(positions),
            tuple(values[-1] + self.spread * (level - 0.5) for level in LEVELS) if positions else (),
        )


class Social(Toy):
    """Predicts the mean of the last values of the other jobs."""

    reads: ClassVar[Literal["nothing", "curves"]] = "curves"

    def predict(self, question: Question) -> Prediction:
        own = super().predict(question)
        last = [curve.values[-1] for curve in question.others] or [-1.0]
        return Prediction(
            own.positions, (sum(last) / len(last),) * len(own.mean), own.deviation, own.reaches, own.final
        )


class Historian(Toy):
    """Predicts the number of reports of earlier experiments."""

    reads: ClassVar[Literal["nothing", "curves"]] = "curves"

    def predict(self, question: Question) -> Prediction:
        own = super().predict(question)
        told = sum(len(curve.values) for curve in question.earlier)
        return Prediction(own.positions, (float(told),) * len(own.mean), own.deviation, own.reaches, own.final)


class Bad(Toy):
    """Fails in `predict` as `how` says: "sleep", "spin", "raise", "exit", "kill", "grow", "hog", "lie", "print", "fork".

    "fork" ends the process, while a child in another process session has its output open.

    With `note`, it first starts a child process and writes the child's id to that file.
    """

    def __init__(self, how: str, note: str = "", **parameters: Any) -> None:
        super().__init__(**parameters)
        self.how = how
        self.note = note

    def predict(self, question: Question) -> Prediction:
        if self.note and self.how != "fork":
            _beside(self.note)
        if self.how == "sleep":
            time.sleep(600)
        if self.how == "hog":
            held = bytearray(b"x" * (400 * 2**20))
            time.sleep(600)
            raise AssertionError(f"nobody has ended what holds {len(held)} bytes")
        if self.how == "spin":
            while True:
                pass
        if self.how == "raise":
            raise ZeroDivisionError("no way")
        if self.how == "exit":
            os.write(2, b"last words\n")
            os._exit(3)
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "grow":
            raise MemoryError("no room for 1 TiB")
        if self.how == "fork":
            if (child := os.fork()) == 0:
                os.setsid()
                time.sleep(600)
            Path(self.note).write_text(str(child))
            os._exit(3)
        if self.how == "lie":
            return Prediction((1,), (0.0,), (-1.0,))
        if self.how == "print":
            os.write(1, b"hello to the log\n")
        return super().predict(question)


class Ending(Toy):
    """Ends its process when it is constructed."""

    def __init__(self, **parameters: Any) -> None:
        super().__init__(**parameters)
        os.write(2, b"famous last words\n")
        os._exit(3)


class Endless(Toy):
    """Never completes its construction; it starts a child process and writes the child's id to the file `note`."""

    def __init__(self, note: str, **parameters: Any) -> None:
        super().__init__(**parameters)
        _beside(note)
        while True:
            pass


class Mute(Toy):
    """Closes its file descriptors when it is constructed, so that it cannot answer, creates the file `note`, and sleeps."""

    def __init__(self, note: str = "", **parameters: Any) -> None:
        super().__init__(**parameters)
        os.closerange(3, 256)
        if note:
            Path(note).touch()
        time.sleep(600)


def _beside(note: str) -> None:
    """Start a child process that sleeps for 600 s, and write its id to the file `note`."""
    started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(note).write_text(str(started.pid))


class Unmakeable(Toy):
    """Raises an error when it is constructed."""

    def __init__(self, **parameters: Any) -> None:
        super().__init__(**parameters)
        raise RuntimeError("not today")
