"""Test that a job which changes nodes at every stretch trains exactly what it trains alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard.client.types import ExperimentState
from tests.e2e.branches import branching_file
from tests.e2e.harness import all_trained_alone, cluster
from tests.e2e.units import journal, units_of
from tests.timing import HANG_SECONDS


@pytest.mark.timeout(300)
async def test_suspended_on_one_agent_and_resumed_on_another_is_bit_identical(tmp_path: Path) -> None:
    file = branching_file(
        tmp_path / "code",
        tmp_path / "log",
        policy={"name": "tests.e2e.policies:Mover", "stretch": 3},
        space={"optimizer": "adam", "lr": {"loguniform": [1e-3, 1e-1]}, "momentum": 0.9, "batch_size": 32},
        generator="random",
        stop={"jobs": 2, "max_iterations": 9},
    )
    async with cluster(tmp_path / "data", {"a": 1, "b": 1}) as (processes, client):
        experiment = await client.create(file)
        ended = await client.wait(experiment.id, timeout=HANG_SECONDS)
        assert ended.state is ExperimentState.COMPLETED
        jobs = await client.jobs(experiment.id)
        assert [job.attempt for job in jobs] == [3, 3]
        nodes: dict[str, list[str]] = {}
        for unit in units_of(await journal(processes.scheduler, experiment.id)):
            nodes.setdefault(unit.key.job, []).append(unit.node)
        assert all(own in (["a", "b", "a"], ["b", "a", "b"]) for own in nodes.values()), nodes
        alone = all_trained_alone(file.parent, [job.hyperparameters for job in jobs], 9, "Branching")
        for job, curve in zip(jobs, alone, strict=True):
            statistics = await client.statistics(experiment.id, job.id)
            reports = [s.report for s in statistics]
            found = {r.position: {name: value.hex() for name, value in r.metrics.items()} for r in reports}
            assert found == curve
