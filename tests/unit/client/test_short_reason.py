"""Tests of the short forms of reasons, which have the error first."""

from __future__ import annotations

import pytest

from hopyard.cli.live.model import LiveModel
from hopyard.client.display import outcome
from hopyard.client.display.short_reason import failed_attempt, short_reason
from hopyard.client.types import Experiment, ExperimentState, Job, JobState, Metric
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode

pytestmark = pytest.mark.quick

OUTPUT = "the program ended with exit code 1; its last lines:\nTraceback (most recent call last):\nValueError: no data"


def message(text: str) -> Reason:
    return Reason.of(ReasonCode.RUN_MESSAGE, message=text)


def failed(text: str) -> Reason:
    return Reason.of(ReasonCode.FAILED, left=2, cause=message(text))


def job(reason: Reason, name: str = "1", state: JobState = JobState.PENDING, attempt: int = 1) -> Job:
    return Job("e1", name, state, str(reason), attempt=attempt, reason_code=reason.code, reason_args=reason.args)


@pytest.mark.parametrize(
    ("reason", "short"),
    [
        (failed(OUTPUT), "ValueError: no data; attempt 2 of 4 waits"),
        (failed("ended; it said:\na\nb"), "b; attempt 2 of 4 waits"),
        (failed(""), "no message; attempt 2 of 4 waits"),
        (Reason.of(ReasonCode.WAITS_FOR_POLICY, last=failed(OUTPUT)), "ValueError: no data; attempt 2 of 4 waits"),
        (
            Reason.of(ReasonCode.WAITS_AFTER_SETBACKS, setbacks=2, seconds=4, last=failed(OUTPUT)),
            "ValueError: no data; attempt 2 of 4 in 4 s",
        ),
        (
            Reason.of(ReasonCode.FAILED_TOO_OFTEN, failures=4, allowed=3, cause=message(OUTPUT)),
            "ValueError: no data; failed 4 times, 3 allowed: the program ended with exit code 1",
        ),
        (
            Reason.of(
                ReasonCode.FAILED_FOR_GOOD,
                cause=Reason.of(
                    ReasonCode.RANK_ENDED, rank=1, cause=Reason.of(ReasonCode.RUN_MESSAGE, message="bad\nmore")
                ),
            ),
            "bad; another attempt would fail too: rank 1",
        ),
        (
            Reason.of(ReasonCode.RUN_LOST, cause=Reason.of(ReasonCode.NODE_LOST, node="n1")),
            "its run was lost: node n1 is lost",
        ),
        (Reason.of(ReasonCode.SUSPENDED, position=3), "suspended at 3"),
        (Reason.of(ReasonCode.TRAINED_SAVING), "trained to its end, ending"),
    ],
)
def test_the_error_comes_first(reason: Reason, short: str) -> None:
    assert short_reason(job(reason)) == short


AGAIN = Reason.of(ReasonCode.ATTEMPT_AFTER_FAILURE, attempt=2, attempts=4, cause=message(OUTPUT))


@pytest.mark.parametrize(
    ("state", "reason", "attempt", "line"),
    [
        (JobState.SUSPENDED, failed(OUTPUT), 1, "job 1 failed, attempt 2 of 4 waits: ValueError: no data"),
        (
            JobState.STARTING,
            Reason.of(ReasonCode.STARTS_PREPARING, slots="n/0", last=failed(OUTPUT)),
            2,
            "job 1 failed, attempt 2 of 4 starts: ValueError: no data",
        ),
        (JobState.RUNNING, AGAIN, 2, "job 1 failed, attempt 2 of 4: ValueError: no data"),
        (
            JobState.RUNNING,
            Reason.of(ReasonCode.PARKED, position=3, last=failed(OUTPUT)),
            2,
            "job 1 failed, attempt 2 of 4: ValueError: no data",
        ),
    ],
)
def test_a_job_that_tries_again_says_which_attempt_it_is(
    state: JobState, reason: Reason, attempt: int, line: str
) -> None:
    assert str(failed_attempt(job(reason, state=state, attempt=attempt))) == line


def test_a_job_that_has_ended_or_not_failed_tries_nothing_again() -> None:
    assert failed_attempt(job(failed(OUTPUT), state=JobState.FAILED)) is None
    assert failed_attempt(job(Reason.of(ReasonCode.SUSPENDED, position=3))) is None
    assert failed_attempt(Job("e1", "1", JobState.RUNNING)) is None


def test_failures_that_differ_in_numbers_are_one_group() -> None:
    jobs = [
        job(failed(f"ValueError: lr={rate} is too large"), name, JobState.FAILED)
        for name, rate in [("1", 0.5), ("2", "1e-3")]
    ]
    experiment = Experiment("e1", "e", ExperimentState.COMPLETED, Metric("loss", "min"))
    line = "ValueError: lr=0.5 is too large; failed (2 more failures allowed)"
    assert [(ids, shown) for _, ids, shown in outcome.reasons(experiment, jobs)] == [("1, 2", line)]
    model = LiveModel()
    for one in jobs:
        model.apply(one, 0.0)
    assert model.failures() == [(JobState.FAILED, 2, line)]
