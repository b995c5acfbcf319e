"""Tests that the process of an answer that is too large, and is therefore not read, ends with its context."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import psutil
import pytest

from hopyard._runtime.processes.worker_client import aside
from hopyard.errors import InvalidInput
from tests.timing import HANG_SECONDS

MODULE = "tests.integration.worker_processes.large_answer"


async def test_a_process_whose_answer_is_too_large_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    here = str(Path(__file__).parents[3])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]))
    error = "large: its process said what is no answer: 2000013 bytes, at most 100 are allowed"
    async with asyncio.timeout(HANG_SECONDS):
        async with aside(MODULE, "large", priority=0, most_bytes=100) as worker:
            with pytest.raises(InvalidInput, match=error):
                await worker.ask({"path": []}, None, "to answer", "while it answered")
        assert not psutil.pid_exists(worker.pid)
