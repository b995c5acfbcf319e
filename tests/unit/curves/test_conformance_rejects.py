"""Tests of the predictor conformance suite: it accepts correct predictors, and a named test rejects each defective one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from hopyard.errors import InvalidInput
from hopyard.predictor.conformance import PredictorConformance
from hopyard.predictor.edge_cases import CURVES, HISTORIES
from tests.unit.curves import broken

pytestmark = pytest.mark.nightly

HASH_ORDER = "test_answers_do_not_depend_on_hash_order"

# The tests of the suite, with the arguments of their parametrization.
SUITE: dict[str, tuple[Any, ...]] = {
    "test_every_curve_has_an_answer": tuple(CURVES),
    "test_nothing_finite_is_refused": (),
    "test_reports_that_are_not_finite_are_left_out": (),
    "test_predictions_are_where_the_job_will_report": (),
    "test_nothing_is_left_to_predict_at_the_horizon": (),
    "test_a_constant_curve_stays": (),
    "test_it_is_neither_overconfident_nor_absurdly_wide": (0.1, 0.3, 0.6),
    "test_history_leaves_it_honest": (0.1, 0.3, 0.6),
    "test_chances_agree_with_the_target": (),
    "test_direction_and_scale_change_nothing": (),
    "test_reads_what_it_says": (),
    "test_order_of_history_plays_no_part": (),
    "test_any_history_is_survived": tuple(name for name in HISTORIES if name != "a thousand"),
    "test_same_question_same_answer": (),
    "test_reads_no_clock_no_global_chance_and_no_file": (),
    "test_changes_nothing_that_it_was_given": (),
    "test_answers_in_time": (),
    "test_answers_travel_as_json": (),
    "test_unknown_parameters_are_refused": (),
}

# A defective predictor's suite, the test that rejects it, and the message of that test and of any other that finds the defect.
BROKEN = [
    (broken.TooSureSuite, "test_it_is_neither_overconfident_nor_absurdly_wide", "overconfident: seen to"),
    (broken.TooWideSuite, "test_it_is_neither_overconfident_nor_absurdly_wide", "too wide or far off: seen to"),
    (broken.SureOfItsHistorySuite, "test_history_leaves_it_honest", "overconfident: seen to"),
    (
        broken.GlobalChanceSuite,
        "test_reads_no_clock_no_global_chance_and_no_file",
        r"random\.random in state|was answered differently|changes more than `reaches`|the answer$",
    ),
    (broken.ReadsTheClockSuite, "test_reads_no_clock_no_global_chance_and_no_file", r"time\.monotonic in predict"),
    (broken.RemembersSuite, "test_same_question_same_answer", "was answered differently"),
    (broken.ChangesTheQuestionSuite, "test_changes_nothing_that_it_was_given", "changed the question"),
    (broken.SlowSuite, "test_answers_in_time", r"a prediction took 0\.080 s of a core; the limit is 0\.05 s"),
    (broken.NanIsZeroSuite, "test_reports_that_are_not_finite_are_left_out", "three reports of nan change the answer"),
    (broken.PredictsFromNothingSuite, "test_nothing_finite_is_refused", "DID NOT RAISE .*NotPredictableError"),
    (broken.NeedsTwoReportsSuite, "test_every_curve_has_an_answer", "a spread needs two reports"),
    (broken.NanOfConstantsSuite, "test_every_curve_has_an_answer", "deviation must be finite, found nan"),
    (broken.HopesForConstantsSuite, "test_a_constant_curve_stays", r"0\.1 20 times, but .* expected"),
    (broken.PrefersMoreSuite, "test_direction_and_scale_change_nothing", "of the negative"),
    (broken.KnowsOneScaleSuite, "test_direction_and_scale_change_nothing", "of 4 times the metric plus 0 differs"),
    (broken.BeyondTheBoundsSuite, "test_every_curve_has_an_answer", "final is .* but the metric lies between"),
    (broken.NoiselessChancesSuite, "test_every_curve_has_an_answer", "reaches ends with .* but by final the chance of"),
    (broken.NegatedQuantilesSuite, "test_every_curve_has_an_answer", "final are quantiles, which never fall"),
    (broken.KnowsTheTargetSuite, "test_chances_agree_with_the_target", "the target changes more than `reaches`"),
    (broken.FiftyMoreSuite, "test_every_curve_has_an_answer", r"positions must rise from above \d+ to the horizon"),
    (broken.EachPositionSuite, "test_predictions_are_where_the_job_will_report", "reports come each 5 up to 60, but"),
    (
        broken.NeverEndsSuite,
        "test_nothing_is_left_to_predict_at_the_horizon",
        "positions must rise from above 20 to the horizon",
    ),
    (broken.SinglePrecisionSuite, "test_answers_travel_as_json", "float32 is not JSON serializable"),
    (broken.ReadsInSecretSuite, "test_reads_what_it_says", "says that it reads nothing, but"),
    (broken.MindsTheOrderSuite, "test_order_of_history_plays_no_part", "in another order change the answer"),
    (broken.TrustsItsHistorySuite, "test_any_history_is_survived", r"max\(\) \w+ .* empty|must be finite"),
    (broken.TakesAnythingSuite, "test_unknown_parameters_are_refused", "DID NOT RAISE .*PredictorParameterError"),
]


def rejections(suite: type[PredictorConformance]) -> Iterator[tuple[str, str]]:
    """Yield the tests that a suite fails with their messages; the test in another process is left out."""
    for test, arguments in SUITE.items():
        for argument in arguments or (None,):
            try:
                getattr(suite(), test)(*(() if argument is None else (argument,)))
            except (AssertionError, InvalidInput, TypeError, ValueError, pytest.fail.Exception) as error:
                yield test, str(error)


def test_the_whole_suite_is_looked_at_here() -> None:
    assert {*SUITE, HASH_ORDER} == {name for name in dir(PredictorConformance) if name.startswith("test_")}


@pytest.mark.parametrize("suite", [broken.Suite, broken.PooledSuite])
def test_a_sound_predictor_passes(suite: type[PredictorConformance]) -> None:
    assert list(rejections(suite)) == []
    getattr(suite(), HASH_ORDER)()
    suite().test_any_history_is_survived("a thousand")


@pytest.mark.parametrize(
    ("suite", "test", "message"), BROKEN, ids=[suite.__name__.removesuffix("Suite") for suite, _, _ in BROKEN]
)
def test_a_broken_predictor_is_rejected_for_its_mistake_alone(
    suite: type[PredictorConformance], test: str, message: str
) -> None:
    found = list(rejections(suite))
    assert test in dict(found)
    assert [said for said in found if not re.search(message, said[1])] == []


def test_answers_that_hang_on_hashes_are_rejected() -> None:
    with pytest.raises(AssertionError, match="the hash seed changes the answers: first Prediction"):
        broken.HashesSuite().test_answers_do_not_depend_on_hash_order()
    assert list(rejections(broken.HashesSuite)) == []
