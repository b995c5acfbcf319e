"""Tests of the short forms of reasons, which have the error first."""

from __future__ import annotations

import pytest

from hopyard.cli.live.model import LiveModel
from hopyard.client.display import outcome
from hopyard.client.display.short_reason import short_reason
from hopyard.client.types import Experiment, ExperimentState, Job, JobState, Metric
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode

pytestmark = pytest.mark.quick

OUTPUT = "the program ended with exit code 1; its last lines:\nTraceback (most recent call last):\nValueError: no data"


def failed(message: str) -> Reason:
    return Reason.of(ReasonCode.FAILED, left=2, cause=Reason.of(ReasonCode.RUN_MESSAGE, message=message))


def job(reason: Reason, name: str = "1", state: JobState = JobState.PENDING) -> Job:
    return Job("e1", name, state, str(reason), reason_code=reason.code, reason_args=reason.args)


@pytest.mark.parametrize(
    ("reason", "short"),
    [
        (failed(OUTPUT), "ValueError: no data; failed (2 more failures allowed): the program ended with exit code 1"),
        (failed("ValueError: no"), "ValueError: no; failed (2 more failures allowed)"),
        (failed("ended; it said:\na\nb"), "b; failed (2 more failures allowed): ended"),
        (failed(""), "failed (2 more failures allowed):"),
        (
            Reason.of(ReasonCode.SUSPENDED, position=3, last=failed(OUTPUT)),
            "ValueError: no data; suspended at 3; last: failed (2 more failures allowed): the program ended with exit code 1",
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
