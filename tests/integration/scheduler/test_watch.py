"""Tests that a watch yields all changes up to the end, even if the scheduler is ahead of its journal."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import Experiment, ExperimentState, Job, JobGone, JobReport, JobState
from hopyard_scheduler.runtime.journal import Journal
from tests.integration.scheduler.conftest import experiment
from tests.timing import HANG_SECONDS, scaled


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
            assert last.state is ExperimentState.FAILED
            assert last.reason.endswith(": import of train.py:Missing: train.py defines no Missing")
            # No job is tried twice, and none is started that would fail in the same manner.
            assert {job.failures for job in jobs.values() if job.state is JobState.FAILED} == {1}
            assert {job.attempt for job in jobs.values()} <= {0, 1}


async def test_jobs_for_which_there_is_no_configuration_are_gone_for_a_watcher_too(
    client: AsyncClient, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    more = f"generator: {{name: 'tests.integration.scheduler.generators:GatedGrid', gate: '{gate}'}}"
    file = experiment(tmp_path / "e", jobs=9, length=2, more=more)
    file.write_text(re.sub(r"(?m)^space: .*$", "space: {x: {choice: [0.1, 0.2]}, pace: 0.0}", file.read_text()))
    created = await client.create(file)
    seen: dict[str, Job] = {}
    gone: set[str] = set()
    async for change in client.watch(created.id):
        if isinstance(change, Job):
            seen[change.id] = change
            if len(seen) > 2:
                gate.touch()
        elif isinstance(change, JobGone):
            before = seen.pop(change.job, None)
            assert before is None or before.state is JobState.CREATING
            gone.add(change.job)
    assert gone
    assert set(seen) == {job.id for job in await client.jobs(created.id)} == {"1", "2"}


async def test_the_state_of_a_quiet_experiment_is_repeated(
    client: AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hopyard_scheduler.experiments.queries.REPEAT_SECONDS", scaled(0.1))
    created = await client.create(experiment(tmp_path / "e", jobs=1, length=2))
    await client.pause(created)
    paused = await client.wait(created, HANG_SECONDS, until={ExperimentState.PAUSED})
    repeated = 0
    async with asyncio.timeout(HANG_SECONDS), aclosing(client.watch(paused)) as changes:
        async for change in changes:
            repeated += isinstance(change, Experiment)
            if repeated == 3:
                break
