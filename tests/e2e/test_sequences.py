"""Test of a live search over sequences whose jobs are suspended: each has the same curve as when it is trained alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard.client import Client
from hopyard.client.types import JobState
from tests.e2e.harness import all_trained_alone, softmax_file
from tests.timing import HANG_SECONDS

SPACE = {
    "lr": {
        "sequence": [
            {"warmup": {"duration": 2, "target": 0.3, "then": {"exponential": {"gamma": 0.8}}}},
            {"multi_step": {"initial": 0.3, "milestones": [3], "gamma": 0.1}},
        ]
    },
    "momentum": {"choice": [0.5, {"sequence": {"multi_step": {"milestones": [2, 4], "values": [0.0, 0.5, 0.9]}}}]},
}


@pytest.mark.timeout(240)
def test_suspended_jobs_follow_their_sequences_bit_for_bit(tmp_path: Path) -> None:
    until = 6
    file = softmax_file(
        tmp_path / "code",
        space=SPACE,
        generator="grid",
        policy={"name": "default", "barrier": True, "epoch": 1},
        stop={"max_iterations": until},
        snapshot={"every": 1},
    )
    with Client.local(tmp_path / "data", slots=2) as client:
        experiment = client.wait(client.create(file), timeout=HANG_SECONDS)
        jobs = client.jobs(experiment)
        statistics = {job.id: client.statistics(experiment, job.id) for job in jobs}
    assert [job.state for job in jobs] == [JobState.COMPLETED] * 4
    # In each round the two slots retain at most two jobs of the round before; the two others are resumed.
    assert sum(job.attempt for job in jobs) >= 4 + 2 * (until - 1)
    alone = all_trained_alone(file.parent, [job.hyperparameters for job in jobs], until, "Softmax")
    for job, curve in zip(jobs, alone, strict=True):
        reports = [statistic.report for statistic in statistics[job.id]]
        assert {str(r.position): {k: v.hex() for k, v in r.metrics.items()} for r in reports} == {
            str(position): metrics for position, metrics in curve.items()
        }
