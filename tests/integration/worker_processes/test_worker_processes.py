"""Tests of worker processes: their answers, their limits and their ends."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import psutil
import pytest

from hopyard._runtime.criu import procfs
from hopyard._runtime.processes.process_family import ProcessFamily
from hopyard._runtime.processes.process_limits import ResourceLimits
from hopyard._runtime.processes.worker_client import WorkerEnded, aside
from hopyard.errors import InvalidInput
from tests.timing import HANG_SECONDS

FOLDER = "tests.integration.worker_processes"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the worker processes find the tests."""
    here = str(Path(__file__).parents[3])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]))


async def test_a_process_whose_answer_is_too_large_ends() -> None:
    error = "large: its process said what is no answer: 2000013 bytes, at most 100 are allowed"
    async with asyncio.timeout(HANG_SECONDS):
        async with aside(f"{FOLDER}.large_answer", "large", priority=0, most_bytes=100) as worker:
            with pytest.raises(InvalidInput, match=error):
                await worker.ask({"path": []}, None, "to answer", "while it answered")
        assert not psutil.pid_exists(worker.pid)


async def test_a_child_that_is_started_while_the_process_is_killed_does_not_delay_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The child is not among the descendants that are killed with the process, and it has the output of the process open."""
    monkeypatch.setattr(ProcessFamily, "kill", lambda family: procfs.kill([family._leader]))
    async with asyncio.timeout(HANG_SECONDS):
        async with aside(
            f"{FOLDER}.children", "parent", priority=0, most_bytes=100, limits=ResourceLimits(processes=1)
        ) as worker:
            await worker.ask({"path": []}, None, "to be made", "while it was made")
            with pytest.raises(WorkerEnded, match="parent: it has started more than 0 processes"):
                await worker.ask({}, None, "to answer", "while it answered")
