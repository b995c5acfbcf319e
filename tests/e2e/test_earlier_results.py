"""Test that an experiment serves the predictions of the next one, after the data directory was closed and opened again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hopyard.client.types import ExperimentState
from hopyard_engine.core.events import Answered
from hopyard_tools.commands.journal_source import opened
from tests.e2e.harness import cluster, softmax_file

JOBS, LENGTH = 2, 3
PATIENT = "tests.integration.scheduler.prediction_policies:Patient"


async def expected(data: Path, file: Path) -> set[float]:
    """Run an experiment in a newly started cluster, and return the last predicted means."""
    async with cluster(data, {"n": 2}) as (processes, client):
        ended = await client.wait(await client.create(file), timeout=200)
        assert ended.state is ExperimentState.COMPLETED, ended.reason
        found = set()
        async with opened(processes.scheduler, None, ended.id, "a test") as source:
            async for _, event in source.read():
                if isinstance(event, Answered) and event.ticket.startswith("policy/"):
                    assert event.result is not None, event.error
                    found.add(event.result["mean"][-1])
        return found


@pytest.mark.timeout(500)
async def test_a_second_experiment_is_predicted_with_the_runs_of_the_first(tmp_path: Path) -> None:
    def file(name: str, **predictor: Any) -> Path:
        return softmax_file(
            tmp_path / name,
            name=name,
            policy=PATIENT,
            predictor={"name": "tests.integration.predictors:Historian", **predictor},
            stop={"jobs": JOBS, "max_iterations": LENGTH},
        )

    data = tmp_path / "data"
    assert await expected(data, file("first")) == {0.0}
    assert await expected(data, file("second")) == {JOBS * LENGTH}
    assert await expected(data, file("third", earlier=False)) == {0.0}
