"""Predictors with one defect each and a conformance suite for each, to test that the suite rejects them."""

from __future__ import annotations

import math
import random
import time
from dataclasses import replace
from typing import Any, ClassVar, cast

import numpy as np

from hopyard.predictor import Prediction, Predictor, Question
from hopyard.predictor.conformance import PredictorConformance
from tests.unit.curves.honest import Floats, Pooled, RandomWalk


class Suite(PredictorConformance):
    """The conformance suite of the predictor class `of`."""

    of: ClassVar[type[Predictor]] = RandomWalk

    def make(self) -> Predictor:
        return self.of()


class PooledSuite(Suite):
    of = Pooled


class TooSureSuite(Suite):
    class of(RandomWalk):
        def state(self, question: Question, positions: Floats, values: Floats) -> tuple[float, float]:
            last, rate = super().state(question, positions, values)
            return last, rate / 100


class TooWideSuite(Suite):
    class of(RandomWalk):
        def state(self, question: Question, positions: Floats, values: Floats) -> tuple[float, float]:
            last, rate = super().state(question, positions, values)
            return last, 25 * rate


class SureOfItsHistorySuite(Suite):
    class of(Pooled):
        def state(self, question: Question, positions: Floats, values: Floats) -> tuple[float, float]:
            last, rate = super().state(question, positions, values)
            return last, rate / (1 + len(question.others)) ** 2


class GlobalChanceSuite(Suite):
    class of(RandomWalk):
        def state(self, question: Question, positions: Floats, values: Floats) -> tuple[float, float]:
            last, rate = super().state(question, positions, values)
            return last, rate * (1 + 1e-9 * random.random())


class ReadsTheClockSuite(Suite):
    class of(RandomWalk):
        def predict(self, question: Question) -> Prediction:
            time.monotonic()
            return super().predict(question)


class RemembersSuite(Suite):
    class of(RandomWalk):
        def __init__(self, **parameters: Any) -> None:
            super().__init__(**parameters)
            self.asked = 0

        def state(self, question: Question, positions: Floats, values: Floats) -> tuple[float, float]:
            last, rate = super().state(question, positions, values)
            self.asked += 1
            return last, rate * (1 + self.asked / 1e9)


class HashesSuite(Suite):
    class of(RandomWalk):
        def state(self, question: Question, positions: Floats, values: Floats) -> tuple[float, float]:
            last, rate = super().state(question, positions, values)
            seed = hash(f"{question.seed} {question.horizon}") % 1000
            return last, rate * (1 + seed / 1e6)


class ChangesTheQuestionSuite(Suite):
    class of(RandomWalk):
        def predict(self, question: Question) -> Prediction:
            cast(dict[str, Any], question.curve.hyperparameters).pop("lr", None)
            return super().predict(question)


class SlowSuite(Suite):
    time_limit = 0.05
    now: ClassVar[float] = 0.0

    def clock(self) -> float:
        """Return a time that advances only by the time of the slow predictor."""
        return self.now

    class of(RandomWalk):
        def reaches(self, question: Question, last: float, spread: Floats) -> tuple[float, ...]:
            # A separate walk for each future position, through all positions before it.
            if len(spread) > 150:
                SlowSuite.now += 0.08
            return super().reaches(question, last, spread)


class NanIsZeroSuite(Suite):
    class of(RandomWalk):
        def predict(self, question: Question) -> Prediction:
            self.reports(question)
            values = tuple(value if math.isfinite(value) else 0.0 for value in question.curve.values)
            return super().predict(replace(question, curve=replace(question.curve, values=values)))


class PredictsFromNothingSuite(Suite):
    class of(RandomWalk):
        def reports(self, question: Question) -> tuple[Floats, Floats]:
            values = question.curve.values
            if values and not any(math.isfinite(value) for value in values):
                return np.ones(1), np.zeros(1)
            return super().reports(question)


class NeedsTwoReportsSuite(Suite):
    class of(RandomWalk):
        def state(self, question: Question, positions: Floats, values: Floats) -> tuple[float, float]:
            if len(values) == 1:
                raise ValueError("a spread needs two reports")
            return super().state(question, positions, values)


class NanOfConstantsSuite(Suite):
    class of(RandomWalk):
        def predict(self, question: Question) -> Prediction:
            answer = super().predict(question)
            flat = len(set(question.curve.values)) == 1 and len(question.curve.values) > 1
            return replace(answer, deviation=tuple(math.nan for _ in answer.deviation)) if flat else answer


class HopesForConstantsSuite(Suite):
    class of(RandomWalk):
        def state(self, question: Question, positions: Floats, values: Floats) -> tuple[float, float]:
            last, rate = super().state(question, positions, values)
            return (last + 1e3 * math.sqrt(rate) if len(values) > 9 and not np.ptp(values) else last), rate


class PrefersMoreSuite(Suite):
    class of(RandomWalk):
        def state(self, question: Question, positions: Floats, values: Floats) -> tuple[float, float]:
            last, rate = super().state(question, positions, values)
            return last + math.sqrt(rate), rate


class KnowsOneScaleSuite(Suite):
    class of(RandomWalk):
        def state(self, question: Question, positions: Floats, values: Floats) -> tuple[float, float]:
            last, rate = super().state(question, positions, values)
            return last, rate + 1e-5


class BeyondTheBoundsSuite(Suite):
    class of(RandomWalk):
        def predict(self, question: Question) -> Prediction:
            answer = super().predict(replace(question, target=None))
            free = super().predict(replace(question, low=None, high=None))
            return replace(free, mean=answer.mean)


class NoiselessChancesSuite(Suite):
    class of(RandomWalk):
        def reaches(self, question: Question, last: float, spread: Floats) -> tuple[float, ...]:
            return super().reaches(question, last, spread / 3)


class NegatedQuantilesSuite(Suite):
    class of(RandomWalk):
        def predict(self, question: Question) -> Prediction:
            answer = super().predict(question)
            return answer if question.mode == "max" else replace(answer, final=answer.final[::-1])


class KnowsTheTargetSuite(Suite):
    class of(RandomWalk):
        def state(self, question: Question, positions: Floats, values: Floats) -> tuple[float, float]:
            last, rate = super().state(question, positions, values)
            return last, rate if question.target is None else 1.01 * rate


class FiftyMoreSuite(Suite):
    class of(RandomWalk):
        def future(self, question: Question) -> tuple[int, ...]:
            ahead = super().future(question)
            return tuple(range(ahead[0], ahead[0] + 50)) if ahead else ()


class EachPositionSuite(Suite):
    class of(RandomWalk):
        def future(self, question: Question) -> tuple[int, ...]:
            return tuple(range(question.curve.positions[-1] + 1, question.horizon + 1))


class NeverEndsSuite(Suite):
    class of(RandomWalk):
        def future(self, question: Question) -> tuple[int, ...]:
            return super().future(question) or (question.curve.positions[-1] + 1,)


class SinglePrecisionSuite(Suite):
    class of(RandomWalk):
        def predict(self, question: Question) -> Prediction:
            answer = super().predict(question)
            return replace(answer, deviation=tuple(np.asarray(answer.deviation, dtype=np.float32)))


class ReadsInSecretSuite(Suite):
    class of(Pooled):
        reads: ClassVar = "nothing"


class MindsTheOrderSuite(Suite):
    class of(Pooled):
        def state(self, question: Question, positions: Floats, values: Floats) -> tuple[float, float]:
            return super().state(replace(question, others=question.others[:3]), positions, values)


class TrustsItsHistorySuite(Suite):
    class of(Pooled):
        def state(self, question: Question, positions: Floats, values: Floats) -> tuple[float, float]:
            best = [max(other.values) for other in question.others]
            last, rate = super().state(question, positions, values)
            return last, rate + (1e-9 * float(np.var(best)) if best else 0.0)


class TakesAnythingSuite(Suite):
    class of(RandomWalk):
        def __init__(self, **parameters: Any) -> None:
            super().__init__()
