"""Tests of the value that pop_plus assigns to jobs and new configurations, against cases computed by hand."""

from __future__ import annotations

import math

import pytest

from hopyard_policies.pop_plus import PredictionHistory, Prospect, prospect_of
from hopyard_policies.pop_plus.calibration import REMEMBERED

pytestmark = pytest.mark.quick


def test_training_in_vain_costs_time() -> None:
    # Two epochs of 2 s. The first reaches the target with probability 0.25, so the second is trained with probability 0.75.
    assert prospect_of([0.25, 0.5], math.inf, 2.0) == pytest.approx((0.5, 2.0 + 0.75 * 2.0))


def test_a_target_once_reached_stays_reached() -> None:
    assert prospect_of([0.5, 0.2, 0.5], math.inf, 1.0) == pytest.approx((0.5, 1.0 + 0.5 + 0.5))


def test_nothing_counts_after_the_experiments_time() -> None:
    assert prospect_of([0.1, 0.2, 1.0], 0.2, 0.1) == pytest.approx((0.2, 0.1 + 0.09))
    assert prospect_of([1.0], 0.05, 0.1) == Prospect(0.0, 0.0)
    assert prospect_of([1.0], -1.0, 0.1).chance == 0.0


def test_a_job_without_a_future_is_worth_nothing() -> None:
    assert prospect_of([], math.inf, 1.0).worth() == 0.0


def test_a_switch_makes_a_job_worth_less() -> None:
    assert Prospect(0.5, 4.0).worth() == pytest.approx(0.125)
    assert Prospect(0.5, 4.0).worth(1.0) == pytest.approx(0.1)


def test_before_any_look_a_new_configuration_is_worth_more_than_anything() -> None:
    assert PredictionHistory().fresh() == math.inf


def test_a_new_configuration_is_worth_what_the_best_line_between_first_looks_would_have_been() -> None:
    experience = PredictionHistory()
    experience.look("1", Prospect(0.9, 9.0), 1.0, 10.0)
    # The prior job (0.1 in 10 s) and a prediction for job 1 (1 s), or that job trained further as well.
    assert experience.fresh() == pytest.approx(max(0.1 / 11, 1.0 / 20))
    experience.look("2", Prospect(0.01, 9.0), 1.0, 10.0)
    assert experience.fresh() == pytest.approx(max(0.1 / 12, 1.0 / 21, 1.01 / 30))
    assert experience.worth("2") < experience.fresh() < experience.worth("1")


def test_hopeless_looks_make_new_configurations_worth_less() -> None:
    experience, before = PredictionHistory(), math.inf
    for job in range(10):
        experience.look(str(job), Prospect(0.0, 9.0), 1.0, 10.0)
        assert 0.0 < experience.fresh() < before
        before = experience.fresh()
    assert experience.fresh() == pytest.approx(0.1 / (10 + 10))


def test_chances_count_as_much_as_they_have_come_true() -> None:
    experience = PredictionHistory()
    for job in ("1", "2"):
        experience.look(job, Prospect(0.8, 8.0), 2.0, 10.0)
    assert experience.worth("2") == pytest.approx(0.1)
    # The prediction for job 1 fell from 0.8 to 0.2: (0.5 + 0.2) / (0.5 + 0.8) is the factor for a first prediction.
    experience.look("1", Prospect(0.2, 6.0), 4.0, 10.0)
    assert experience.worth("2") == pytest.approx(0.1 * 0.7 / 1.3)
    assert experience.worth("1") == pytest.approx(0.2 / 6)


def test_chances_that_have_grown_are_believed_and_no_more() -> None:
    experience = PredictionHistory()
    for job in ("1", "2"):
        experience.look(job, Prospect(0.2, 8.0), 2.0, 10.0)
    experience.look("1", Prospect(0.9, 6.0), 4.0, 10.0)
    assert experience.worth("2") == pytest.approx(0.2 / 8)


def test_only_the_latest_of_jobs_that_have_ended_are_remembered() -> None:
    experience = PredictionHistory()
    for job in range(REMEMBERED + 50):
        experience.look(str(job), Prospect(0.5, 9.0), 1.0, 10.0)
        experience.end(str(job))
    assert len(experience.tracks) == REMEMBERED
    assert not experience.known("0")
