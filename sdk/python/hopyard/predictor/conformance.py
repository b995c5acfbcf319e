"""The test suite for learning-curve predictors.

Subclass it in a test module that pytest runs:

    class TestMine(PredictorConformance):
        def make(self) -> Predictor:
            return Mine(width=3)

It needs pytest. Its questions are in `hopyard.predictor.testing` and `hopyard.predictor.edge_cases`.
"""

from __future__ import annotations

import copy
import importlib
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from hopyard.policy.testing.purity import impurities
from hopyard.predictor.base import (
    Curve,
    NotPredictableError,
    Prediction,
    Predictor,
    PredictorParameterError,
    Question,
)
from hopyard.predictor.checks import problems
from hopyard.predictor.edge_cases import CURVES, HISTORIES, variants
from hopyard.predictor.testing import EPOCHS, FAMILIES, CurveFamily, crps, curve, mirrored, rank, scaled
from hopyard.predictor.wire import prediction_from_wire, prediction_to_wire

_SAME = 1e-6
"""Answers count as equal if they differ by less than this, relative to the metric's range."""
_TAIL, _MISFIT, _SURE = 0.05, 0.10, 2.6
"""A tail of a prediction contains 5% of the outcomes. A sound predictor that does not know the families may miss 10%
more, plus this number of standard deviations for chance.
"""
_WIDE = 2.5
"""Maximum ratio of the score to the score of predicting the last value with certainty."""


class PredictorConformance:
    """The tests that every predictor must pass. Subclass it in a test module, and define `make`.

    Define the subclass at the top level of its module, because one test imports it in another process.

    Attributes:
        time_limit: Maximum CPU seconds per prediction of 170 positions from 30 reports. A predictor that reads curves
            gets 100 other curves as well. The first prediction of a process is not counted.
        curves: Number of random curves from each family of `hopyard.predictor.testing.FAMILIES` on which predictions are
            scored, after 10, 30 and 60 % of each curve. With fewer curves, the tests are faster but less strict.
        honest_from: Fraction of a curve from which on the predictor must be calibrated. If less of the curve is known, its
            predictions may be too certain or too uncertain.
        equivariant: Whether the prediction is independent of the metric's scale if `low` and `high` are known.
    """

    time_limit: ClassVar[float] = 1.0
    curves: ClassVar[int] = 24
    honest_from: ClassVar[float] = 0.0
    equivariant: ClassVar[bool] = True

    def make(self) -> Predictor:
        """Return a new predictor with the same parameters at each call."""
        raise NotImplementedError("a predictor's conformance suite gives `make`")

    # ---------------------------------------------------------------------------------------------------- what it answers

    @pytest.mark.parametrize("name", CURVES)
    def test_every_curve_has_an_answer(self, name: str) -> None:
        """Check that the curve `name` of `edge_cases.CURVES`, such as a short or enormous one, has valid predictions in both modes."""
        predictor = self.make()
        for question in variants(CURVES[name]):
            self.ask(predictor, question)

    def test_nothing_finite_is_refused(self) -> None:
        """Check that a curve without any finite value raises `NotPredictableError`."""
        for values in ((), (math.nan,), (math.nan, math.inf, -math.inf, math.nan)):
            with pytest.raises(NotPredictableError):
                self.make().predict(Question(curve(values), EPOCHS, target=0.5))

    def test_reports_that_are_not_finite_are_left_out(self) -> None:
        """Check that reports that are not finite do not change the distribution at the horizon."""
        question = self.seen(FAMILIES[0], 18)
        kept = [place for place in range(18) if place not in (4, 9, 10)]
        reports, positions = question.curve.values, question.curve.positions
        short = Curve(tuple(positions[at] for at in kept), tuple(reports[at] for at in kept))
        left_out = self.ask(self.make(), replace(question, curve=short))
        for bad in (math.nan, math.inf, -math.inf):
            values = tuple(value if at in kept else bad for at, value in enumerate(reports))
            given = self.ask(self.make(), replace(question, curve=replace(question.curve, values=values)))
            assert _same(given.final, left_out.final), f"three reports of {bad} change the answer"

    def test_predictions_are_where_the_job_will_report(self) -> None:
        """Check that the predicted positions have the spacing of the reports and end at the horizon."""
        for every, horizon in ((1, 60), (5, 60), (5, 63), (7, 61)):
            question = replace(self.seen(FAMILIES[0], 5), horizon=horizon)
            question = replace(question, curve=curve(question.curve.values, every))
            wanted = (*range(6 * every, horizon, every), horizon)
            found = self.ask(self.make(), question).positions
            assert found == wanted, (
                f"reports come each {every} up to {horizon}, but it predicted {found} after {5 * every}"
            )

    def test_nothing_is_left_to_predict_at_the_horizon(self) -> None:
        """Check that the prediction is empty if the last report is at or after the horizon."""
        for horizon in (20, 12):
            for target in (None, 0.5):
                answer = self.ask(self.make(), replace(self.seen(FAMILIES[0], 20), horizon=horizon, target=target))
                assert answer == Prediction((), (), ()), f"at 20 of {horizon} it still predicted {answer}"

    def test_a_constant_curve_stays(self) -> None:
        """Check that the value of a constant curve is within the predicted distribution."""
        for value in (0.1, 0.0, -300.0, 5e6):
            final = self.ask(self.make(), Question(curve([value] * 20), EPOCHS)).final
            room = 0.01 * max(abs(value), 1e-3)
            assert final[0] - room <= value <= final[-1] + room, (
                f"{value} 20 times, but {final[0]} to {final[-1]} expected"
            )

    # ----------------------------------------------------------------------------------------------------- how good it is

    @pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
    def test_it_is_neither_overconfident_nor_absurdly_wide(self, share: float) -> None:
        """Check with `judge` that predictions from the first `share` of a curve are calibrated and not too wide."""
        if share >= self.honest_from:
            self.judge(share, history=0)

    @pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
    def test_history_leaves_it_honest(self, share: float) -> None:
        """Check calibration with `judge` from the first `share` of a curve and ten finished curves, if the predictor reads curves."""
        if self.make().reads == "curves" and share >= self.honest_from:
            self.judge(share, history=10)

    def test_chances_agree_with_the_target(self) -> None:
        """Check that a harder target has a lower probability and no other effect, and that a distant target is unlikely."""
        for family in (FAMILIES[0], FAMILIES[2]):
            question = self.seen(family, 24)
            plain, before = self.ask(self.make(), question), None
            for target in sorted(np.linspace(-0.5, 3.5, 25).tolist(), reverse=family.mode == "min"):
                answer = self.ask(self.make(), replace(question, target=target))
                assert replace(answer, reaches=()) == plain, "the target changes more than `reaches`"
                rising = before is not None and any(b > a + _SAME for a, b in zip(before, answer.reaches, strict=True))
                assert not rising, f"{target} is harder to reach than a target before it, but more likely"
                before = answer.reaches
        level = Question(curve([0.9 - 0.8 * 0.5**at for at in range(30)]), EPOCHS, low=0.0)
        for target, likely in ((0.5, True), (20.0, False)):
            chance = self.ask(self.make(), replace(level, target=target)).reaches[-1]
            assert (chance > 0.5) if likely else (chance < 0.25), (
                f"0.9 for long, but {target} has the chance {chance:.3f}"
            )

    def test_direction_and_scale_change_nothing(self) -> None:
        """Check that predictions follow a change of the metric: its negative with the other mode, and another unit.

        `low` and `high` are known. The test is skipped if `equivariant` is False.
        """
        if not self.equivariant:
            return
        for family, low, high in ((FAMILIES[0], 0.0, 1.0), (FAMILIES[3], -512.0, 320.0)):
            question = self.seen(family, 20)
            # Use multiples of a power of two, so that rounding does not differ between scales.
            values = tuple(round(value * 1024) / 1024 for value in question.curve.values)
            known = replace(question, curve=curve(values), low=low, high=high, target=(low + 3 * high) / 4)
            answer, size = self.ask(self.make(), known), high - low
            turned = self.ask(self.make(), mirrored(known))
            assert _same(turned.reaches, answer.reaches), "the chances of the negative, minimised, are others"
            for name, sign, one in (("mean", -1, turned.mean), ("deviation", 1, turned.deviation)):
                assert _same([sign * value for value in one], getattr(answer, name), size), (
                    f"{name} of the negative differs"
                )
            assert _same([-value for value in reversed(turned.final)], answer.final, size), (
                "final of the negative differs"
            )
            for factor, shift in ((4.0, 0.0), (0.5, 16.0)):
                moved = self.ask(self.make(), scaled(known, factor, shift))
                what = f"of {factor:g} times the metric plus {shift:g} differs"
                assert _same(moved.reaches, answer.reaches), f"reaches {what}"
                for name, plus, one in (("mean", shift, moved.mean), ("final", shift, moved.final)):
                    back = [(value - plus) / factor for value in one]
                    assert _same(back, getattr(answer, name), size), f"{name} {what}"
                assert _same([value / factor for value in moved.deviation], answer.deviation, size), f"deviation {what}"

    # -------------------------------------------------------------------------------------------------- what it learns from

    def test_reads_what_it_says(self) -> None:
        """Check that `reads` is valid and, if it is "nothing", that other curves have no effect."""
        predictor, question = self.make(), self.seen(FAMILIES[0], 12)
        assert predictor.reads in ("nothing", "curves"), f"reads is {predictor.reads!r}; allowed: nothing, curves"
        if predictor.reads == "nothing":
            curves = _finished(FAMILIES[0], 5)
            given = self.ask(self.make(), replace(question, others=curves, earlier=curves))
            assert given == self.ask(predictor, question), (
                "says that it reads nothing, but other curves change the answer"
            )

    def test_order_of_history_plays_no_part(self) -> None:
        """Check that the order of the other curves in the question has no effect."""
        question = replace(self.seen(FAMILIES[0], 12), others=_finished(FAMILIES[0], 12))
        one = self.ask(self.make(), question)
        other = self.ask(self.make(), replace(question, others=question.others[::-1]))
        assert _same(one.final, other.final), "the same curves in another order change the answer"

    @pytest.mark.parametrize("name", HISTORIES)
    def test_any_history_is_survived(self, name: str) -> None:
        """Check that predictions are valid with any other curves in the question: those named `name` in `edge_cases.HISTORIES`.

        They have other lengths, positions, hyperparameters and units, or are diverged, empty or very many.
        """
        for family in (FAMILIES[0], FAMILIES[2]):
            for target in (None, 0.5):
                history, hyperparameters = HISTORIES[name](family)
                asked = replace(self.seen(family, 12), others=history, target=target)
                asked = replace(asked, curve=replace(asked.curve, hyperparameters=hyperparameters))
                self.ask(self.make(), asked)
                self.ask(self.make(), replace(asked, others=_finished(family, 4), earlier=history))

    # --------------------------------------------------------------------------------------------------------- determinism

    def test_same_question_same_answer(self) -> None:
        """Check that a new instance gives the same answer as one that has answered many other questions."""
        busy = self.make()
        for question in [*self.questions(), *reversed(list(self.questions()))]:
            first, again = self.ask(self.make(), question), self.ask(busy, question)
            assert repr(first) == repr(again), "the same question, its seed included, was answered differently"

    def test_answers_do_not_depend_on_hash_order(self) -> None:
        """Check that the answers do not depend on the hash seed of the process, and so not on the order of a set."""
        suite = type(self)
        assert "<locals>" not in suite.__qualname__, f"define {suite.__qualname__} at the top of its module"
        program = "import sys; from hopyard.predictor.conformance import write_answers; write_answers(*sys.argv[1:])"
        outputs = []
        for seed in ("1", "2"):
            environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
            command = [sys.executable, "-c", program, suite.__module__, suite.__qualname__]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=150)
            assert done.returncode == 0, done.stderr
            outputs.append(done.stdout.splitlines())
        first = next((f"first {a}, then {b}" for a, b in zip(*outputs, strict=False) if a != b), "")
        assert outputs[0] == outputs[1], f"the hash seed changes the answers: {first}"

    def test_reads_no_clock_no_global_chance_and_no_file(self) -> None:
        """Check that the predictor uses only `question.seed` for random numbers, and no clock or file."""
        predictor = self.make()
        asked = list(self.questions())
        # The first prediction may import modules and compile code.
        predictor.predict(replace(asked[0], seed=99))
        with impurities() as found:
            for question in asked:
                predictor.predict(question)
        assert not found, f"a predictor must be deterministic given its question, but it called {', '.join(found)}"

    def test_changes_nothing_that_it_was_given(self) -> None:
        """Check that the predictor does not modify the question or its hyperparameters."""
        for question in self.questions():
            given = copy.deepcopy(question)
            self.ask(self.make(), given)
            assert repr(given) == repr(question), "the predictor changed the question"

    # ----------------------------------------------------------------------------------------------------------- the rest

    def test_answers_in_time(self) -> None:
        """Check that the fastest of three predictions takes at most `time_limit` CPU seconds."""
        predictor = self.make()
        others = () if predictor.reads == "nothing" else tuple(_finished(FAMILIES[0], 100))
        spent = list[float]()
        for seed in range(4):
            asked = replace(self.seen(FAMILIES[0], 30, seed), horizon=200, target=0.9, others=others, seed=seed)
            began = self.clock()
            self.ask(predictor, asked)
            spent.append(self.clock() - began)
        quickest = min(spent[1:])
        assert quickest <= self.time_limit, (
            f"a prediction took {quickest:.3f} s of a core; the limit is {self.time_limit} s"
        )

    def test_answers_travel_as_json(self) -> None:
        """Check that a prediction is unchanged after conversion to JSON and back."""
        for question in self.questions():
            answer = self.ask(self.make(), question)
            back = json.loads(json.dumps(prediction_to_wire(answer), allow_nan=False))
            assert prediction_from_wire(back) == answer

    def test_unknown_parameters_are_refused(self) -> None:
        """Check that a parameter that the class does not declare raises `PredictorParameterError`."""
        with pytest.raises(PredictorParameterError):
            type(self.make())(no_such_parameter=1)

    # -------------------------------------------------------------------------------------------------------------- tools

    def clock(self) -> float:
        """Return the CPU seconds that this process has used so far."""
        return time.process_time()

    def ask(self, predictor: Predictor, question: Question) -> Prediction:
        """Return the answer of a predictor to a question; raise `AssertionError` if it is not a valid `Prediction`."""
        answer = predictor.predict(question)
        found = problems(question, answer)
        assert not found, f"{'; '.join(found)} (asked: {_short(question)})"
        return answer

    def seen(self, family: CurveFamily, reports: int, seed: int = 7) -> Question:
        """Return a question about the beginning of one random curve, without hyperparameters and other curves.

        Args:
            family: The family of the curve.
            reports: Number of reports that the question contains.
            seed: Determines the curve.
        """
        return family.question(family.curves(1, seed)[0], reports)

    def questions(self) -> Iterable[Question]:
        """Yield one question for each family of curves: 12 reports and, if the predictor reads them, finished curves of other jobs."""
        reads = self.make().reads == "curves"
        for seed, family in enumerate(FAMILIES):
            asked = replace(self.seen(family, 12), target=0.5, seed=seed)
            given = {"lr": 0.1, "layers": [8, 8], "momentum": None, "kind": "a"}
            asked = replace(asked, curve=replace(asked.curve, hyperparameters=given))
            yield replace(asked, others=_finished(family, 6)) if reads else asked

    def judge(self, share: float, history: int) -> None:
        """Predict the ends of many curves from their beginnings, and compare the predictions with the actual ends.

        Args:
            share: The fraction of each curve that the predictor gets.
            history: Number of finished curves of the same family that it also gets.

        Raises:
            AssertionError: More than 15 % of the ends, with a margin for chance, are below the 5 % quantile of their prediction or
                above the 95 % quantile, or more than 20 % are outside both (overconfident); or the mean CRPS exceeds 2.5
                times the mean error of the last known value (too wide or wrong).
        """
        predictor, count = self.make(), self.curves * len(FAMILIES)
        seen, ranks, scores = round(share * EPOCHS), list[float](), list[float]()
        for family in FAMILIES:
            curves, others = family.curves(self.curves, seed=1), _finished(family, history)
            asked = [replace(family.question(values, seen), others=others, seed=at) for at, values in enumerate(curves)]
            answers = [self.ask(predictor, question) for question in asked]
            ranks += [rank(answer, values[-1]) for answer, values in zip(answers, curves, strict=True)]
            score = np.mean([crps(answer, values[-1]) for answer, values in zip(answers, curves, strict=True)])
            scores.append(float(score / np.mean(np.abs(curves[:, -1] - curves[:, seen - 1]))))
        below, above = sum(one < _TAIL for one in ranks), sum(one > 1 - _TAIL for one in ranks)
        found = f"seen to {share:.0%}, {below} of {count} curves end below the 5% quantile, {above} above the 95% one"
        either, both = int(_most(_TAIL + _MISFIT, count)), int(_most(2 * _TAIL + _MISFIT, count))
        found = f"overconfident: {found}; allowed are {either} at one end, {both} at both"
        assert max(below, above) <= either, found
        assert below + above <= both, found
        wide = float(np.mean(scores))
        found = f"seen to {share:.0%}, CRPS is {wide:.2f} times the error of the last value; allowed is {_WIDE}"
        assert wide <= _WIDE, f"too wide or far off: {found}"


def _most(share: float, count: int) -> float:
    """Return the number of occurrences in `count` trials that an event of probability `share` exceeds with a chance of about 0.5 %."""
    return share * count + _SURE * math.sqrt(share * (1 - share) * count)


def _finished(family: CurveFamily, count: int) -> tuple[Curve, ...]:
    return tuple(curve(values, ended=True) for values in family.curves(count, seed=2)) if count else ()


def _same(one: Iterable[float], other: Iterable[float], size: float = 1.0) -> bool:
    pairs = list(zip(one, other, strict=True))
    return all(abs(a - b) <= _SAME * max(size, 1e-300) for a, b in pairs)


def _short(question: Question) -> str:
    values = question.curve.values
    reports = (
        f"{len(values)} reports, {', '.join(f'{value:g}' for value in values[:4])}{' ..' if len(values) > 4 else ''}"
    )
    terms = f"horizon {question.horizon}, {question.mode}, target {question.target}, {question.low} to {question.high}"
    return f"{reports}; {terms}; {len(question.others)} other curves"


def write_answers(module: str, suite: str) -> None:
    """Write a suite's answers to its `questions` to stdout, one in each line. The suite compares them between processes.

    Args:
        module: The name of the suite's module.
        suite: The name of the suite's class.
    """
    conformance = getattr(importlib.import_module(module), suite)()
    assert isinstance(conformance, PredictorConformance)
    for question in conformance.questions():
        sys.stdout.write(f"{conformance.make().predict(question)}\n")
