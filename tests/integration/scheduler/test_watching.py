"""A watch tells everything up to the end, however far the scheduler is ahead of its journal."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import Experiment, ExperimentState, Job, JobReport, JobState
from hopyard_scheduler.journal import Journal
from tests.integration.scheduler.conftest import experiment


@pytest.fixture(autouse=True)
def slow_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    append = Journal.append

    async def slowly(self: Journal, entries: Sequence[Any], rows: Sequence[Any], at: float) -> None:
        await asyncio.sleep(0.05)
        await append(self, entries, rows, at)

    monkeypatch.setattr(Journal, "append", slowly)


@pytest.mark.parametrize("trainer", ["train.py:Counter", "train.py:Missing"])
async def test_the_last_states_come_before_the_end(client: AsyncClient, tmp_path: Path, trainer: str) -> None:
    for number in range(3):
        file = experiment(tmp_path / str(number), jobs=2, length=2)
        file.write_text(file.read_text().replace("train.py:Counter", trainer))
        created = await client.create(file)
        jobs: dict[str, Job] = {}
        reports: set[tuple[str, int]] = set()
        changes: list[Any] = []
        async for change in client.watch(created.id):
            changes.append(change)
            if isinstance(change, Job):
                jobs[change.id] = change
            elif isinstance(change, JobReport):
                reports.add((change.job, change.report.position))
        (*_, last) = changes
        assert isinstance(last, Experiment)
        assert last.state.ended
        if trainer.endswith("Counter"):
            assert last.state is ExperimentState.COMPLETED
            assert {job.state for job in jobs.values()} == {JobState.COMPLETED}
            assert reports == {(job, position) for job in ("1", "2") for position in (1, 2)}
        else:
            assert {job.state for job in jobs.values()} == {JobState.FAILED}
