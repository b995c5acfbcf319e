"""Tests of the remarks on an experiment that are printed in addition to the reason of its end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hopyard.client.display.outcome import incomplete_search_note
from hopyard.client.types import ExperimentState, JobState
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from tests.unit.cli.test_live import experiment, job, model

pytestmark = pytest.mark.quick

ENDED = {"state": ExperimentState.COMPLETED, "reason_code": ReasonCode.NOTHING_LEFT}


def test_a_search_that_trained_nobody_to_the_end_says_so_and_how_it_goes_on() -> None:
    said = incomplete_search_note(
        experiment(**ENDED), [job("1", JobState.SUSPENDED, 4), job("2", JobState.SUSPENDED, 1)]
    )
    assert said.startswith("no job was trained to 10: the furthest reached 4,")
    assert "hopyard extend e1 --jobs N" in said
    assert "hopyard rungs e1" in said


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, JobState.COMPLETED),
        ({"reason_code": ReasonCode.ALL_JOBS_ENDED}, JobState.TERMINATED),
        ({"reason_code": ReasonCode.STOPPED_BY_PERSON, "state": ExperimentState.STOPPED}, JobState.TERMINATED),
        ({"spec": {"stop": {"max_iterations": 10}, "policy": {"name": "asha", "infinite": True}}}, JobState.SUSPENDED),
        ({"spec": {"stop": {"max_iterations": None}}}, JobState.SUSPENDED),
    ],
)
def test_nothing_is_said_where_one_is_trained_or_that_was_no_aim(changes: dict[str, Any], state: JobState) -> None:
    assert incomplete_search_note(experiment(**{**ENDED, **changes}), [job("1", state)]) == ""


def test_a_program_that_saves_nothing_is_noticed_when_a_job_that_left_begins_again() -> None:
    code = ReasonCode.BACK_AT_POSITION
    made = model(job("1"), replace(job("2", JobState.PENDING), reason_code=code, reason_args={"position": 5}))
    assert not made.starts_over
    made.apply(replace(job("2", JobState.PENDING, 0), reason_code=code, reason_args={"position": 0}), 101.0)
    made.apply(job("2"), 102.0)
    assert made.starts_over


def test_a_program_that_saves_nothing_is_noticed_while_its_job_waits_for_a_slot() -> None:
    suspended = Reason.of(ReasonCode.SUSPENDED, position=3)
    for position in (5, 0):
        back = Reason.of(ReasonCode.BACK_AT_POSITION, position=position, cause=suspended)
        waits = replace(
            job("1", JobState.PENDING, 0),
            reason_code=ReasonCode.WAITS_UNSTARTED,
            reason_args={"idle": 1, "last": back},
        )
        assert model(waits).starts_over is (position == 0)
