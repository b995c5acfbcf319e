"""Tests that the errors in clients' requests for jobs are reported before any request is accepted."""

from __future__ import annotations

import pytest

from hopyard.errors import InvalidInput
from hopyard.space import Space
from hopyard_scheduler.experiments.job_requests import MOST, JobRequest, check

pytestmark = pytest.mark.quick

SPACE = Space.from_dict({"lr": {"loguniform": [0.01, 1.0]}, "batch": {"choice": [16, 32]}}).constrained(
    ["batch < 32 or lr < 0.5"]
)
GOOD = {"lr": 0.1, "batch": 16}


def test_what_fits_is_fine() -> None:
    check([JobRequest(GOOD, 1, "a"), JobRequest({"lr": 0.9, "batch": 16}, 9, "b")], SPACE, 9)


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (JobRequest({"lr": 7.0, "batch": 16}, 1, "a"), r"jobs\[1\]\.hyperparameters: .*lr"),
        (JobRequest({"lr": 0.1}, 1, "a"), r"jobs\[1\]\.hyperparameters: .*batch"),
        (JobRequest({**GOOD, "decay": 1}, 1, "a"), r"jobs\[1\]\.hyperparameters: .*decay"),
        (JobRequest({"lr": 0.9, "batch": 32}, 1, "a"), r"jobs\[1\]\.hyperparameters: the constraint batch < 32"),
        (JobRequest(GOOD, 0, "a"), r"jobs\[1\]\.position: must be in 1\.\.9, found 0"),
        (JobRequest(GOOD, 10, "a"), r"jobs\[1\]\.position: must be in 1\.\.9, found 10"),
        (JobRequest(GOOD, 1, ""), r"jobs\[1\]\.request_id: is required"),
        (JobRequest(GOOD, 1, "r" * 257), r"jobs\[1\]\.request_id: found 257 characters, allowed are at most 256"),
        (JobRequest(GOOD, 1, "first"), r"jobs\[1\]\.request_id: 'first' is there twice"),
    ],
)
def test_what_does_not_is_named(wanted: JobRequest, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        check([JobRequest(GOOD, 1, "first"), wanted], SPACE, 9)


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(InvalidInput) as found:
        check([JobRequest({"lr": 7.0, "batch": 1}, 0, ""), JobRequest(GOOD, 10, "a")], SPACE, 9)
    assert len(str(found.value).splitlines()) == 5


@pytest.mark.parametrize("count", [0, MOST + 1])
def test_a_call_has_some_and_not_too_many(count: int) -> None:
    with pytest.raises(InvalidInput, match=rf"give 1\.\.{MOST} in one call, found {count}"):
        check([JobRequest(GOOD, 1, str(index)) for index in range(count)], SPACE, 9)
