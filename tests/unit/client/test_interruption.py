"""What clients show of experiments and jobs whose cluster has ended: nothing runs, and every job says where it continues."""

from __future__ import annotations

import pytest

from hopyard.client.stored.interruption import has_live_jobs, show_experiment, show_job
from hopyard.client.types import ExperimentState
from hopyard.client.wire import converters
from hopyard.policy.vocabulary.reasons import ReasonCode
from hopyard.v1 import common_pb2, experiment_pb2

pytestmark = pytest.mark.quick

RESUME = "hopyard resume digits --data there"


def experiment(state: str, **counts: int) -> experiment_pb2.Experiment:
    return experiment_pb2.Experiment(
        id="digits-1",
        name="digits",
        state=experiment_pb2.ExperimentState.Value(f"EXPERIMENT_STATE_{state}"),
        metric=common_pb2.Metric(name="accuracy", mode=common_pb2.METRIC_MODE_MAX),
        jobs=counts,
        slots=2,
        share=2,
    )


def job(state: str, *saved: int) -> experiment_pb2.Job:
    return experiment_pb2.Job(
        id="1",
        state=common_pb2.JobState.Value(f"JOB_STATE_{state}"),
        position=9,
        slots=["local/0"],
        snapshots=[common_pb2.Snapshot(job="1", position=position) for position in saved],
    )


@pytest.mark.parametrize("state", ["RUNNING", "ENDING"])
def test_a_running_experiment_is_interrupted_with_the_command_that_continues_it(state: str) -> None:
    message = experiment(state)
    show_experiment(message, RESUME, [])
    shown = converters.experiment(message)
    assert shown.state is ExperimentState.INTERRUPTED
    assert not shown.state.ended
    assert shown.reason_code is ReasonCode.INTERRUPTED
    assert shown.reason == f"its cluster has ended; continue it with: {RESUME}"
    assert (shown.slots, shown.share) == (0, 0)


@pytest.mark.parametrize("state", ["PAUSING", "PAUSED"])
def test_an_experiment_that_a_person_paused_is_paused_with_the_command_that_continues_it(state: str) -> None:
    message = experiment(state)
    message.reason_code = common_pb2.REASON_CODE_PAUSED_BY_PERSON
    show_experiment(message, RESUME, [])
    shown = converters.experiment(message)
    assert (shown.state, shown.reason_code) == (ExperimentState.PAUSED, ReasonCode.PAUSED_BY_PERSON)
    assert shown.reason == f"paused by a person; continue it with: {RESUME}"


@pytest.mark.parametrize("state", ["PAUSED", "COMPLETED", "STOPPED", "FAILED"])
def test_other_experiments_keep_their_state_and_reason(state: str) -> None:
    message = experiment(state)
    message.reason = "why"
    show_experiment(message, RESUME, [])
    shown = converters.experiment(message)
    assert (shown.state.value, shown.reason) == (state, "why")


def test_jobs_are_counted_as_they_are_shown() -> None:
    message = experiment("RUNNING", RUNNING=2, COMPLETED=1)
    assert has_live_jobs(message)
    jobs = [job("RUNNING", 4), job("STARTING"), job("COMPLETED")]
    for one in jobs:
        show_job(one)
    show_experiment(message, RESUME, jobs)
    assert dict(message.jobs) == {"SUSPENDED": 1, "PENDING": 1, "COMPLETED": 1}
    assert not has_live_jobs(message)


@pytest.mark.parametrize("state", ["STARTING", "RUNNING", "SUSPENDING"])
def test_a_job_with_slots_continues_from_its_newest_snapshot(state: str) -> None:
    message = job(state, 4, 8, 6)
    show_job(message)
    shown = converters.job(message)
    assert (shown.state.value, shown.slots) == ("SUSPENDED", ())
    assert shown.reason == "its cluster ended while it had a slot; it continues from its snapshot at 8"


def test_a_job_without_a_snapshot_starts_again() -> None:
    message = job("RUNNING")
    show_job(message)
    shown = converters.job(message)
    assert shown.state.value == "PENDING"
    assert shown.reason == "its cluster ended while it had a slot; it continues from its beginning"


def test_a_job_without_slots_is_shown_as_it_is() -> None:
    message = job("HELD", 4)
    before = job("HELD", 4)
    show_job(message)
    assert message == before
