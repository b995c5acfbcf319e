"""Tests of what an extension or a retry trains again."""

from __future__ import annotations

import pytest

from hopyard.cli.commands.experiments.lost_progress import LostProgress, of_extension, of_jobs
from hopyard.client.types import Job, JobState, Snapshot
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode

pytestmark = pytest.mark.quick


def job(name: str, state: JobState, position: int, *saved: int, code: ReasonCode | None = None, parent: int = 0) -> Job:
    snapshots = tuple(Snapshot(name, at, "00", stored=True) for at in saved)
    args = {"cause": Reason.of(ReasonCode.TIME_OVER, seconds=9.0)} if code is not None else {}
    return Job(
        "e1",
        name,
        state,
        position=position,
        snapshots=snapshots,
        fork_position=parent,
        reason_code=code,
        reason_args=args,
    )


def test_completed_jobs_without_a_snapshot_of_their_end_go_back() -> None:
    jobs = [
        job("1", JobState.COMPLETED, 20, 20),
        job("2", JobState.COMPLETED, 20, 15),
        job("3", JobState.COMPLETED, 20),
        job("4", JobState.FAILED, 20),
        job("5", JobState.COMPLETED, 40),  # Longer than the new length.
        job("6", JobState.COMPLETED, 20, parent=12),
    ]
    assert of_extension(jobs, 40, 0.0) == LostProgress(3, 5 + 20 + 8)
    assert of_extension(jobs, 0, 60.0) == LostProgress()
    assert str(of_extension(jobs, 40, 0.0)) == (
        "3 jobs go back and would train 33 iterations again: no snapshot of their progress is left"
    )


def test_more_time_continues_the_jobs_that_the_time_limit_stopped() -> None:
    late = job("1", JobState.TERMINATED, 7, 4, code=ReasonCode.STOPPED_WITH_EXPERIMENT)
    ended = job("2", JobState.TERMINATED, 7)
    assert of_extension([late, ended], 0, 60.0) == LostProgress(1, 3)
    assert (
        str(LostProgress(1, 1))
        == "1 job goes back and would train 1 iteration again: no snapshot of its progress is left"
    )


def test_a_snapshot_that_neither_the_store_nor_a_node_has_is_no_help() -> None:
    gone = Job("e1", "1", JobState.FAILED, position=5, snapshots=(Snapshot("1", 5, "00"),))
    assert of_jobs([gone]) == LostProgress(1, 5)
    assert not str(LostProgress())
