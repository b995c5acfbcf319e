"""Tests of the answers of worker processes, which are simulated."""

from __future__ import annotations

import asyncio
import io
import tempfile
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hopyard._runtime.processes import worker_client
from hopyard._runtime.processes.worker_client import WorkerProcess
from hopyard.errors import InvalidInput
from tests.timing import HANG_SECONDS

pytestmark = pytest.mark.quick


class Pipes:
    """Simulates an operating system process whose standard output contains one frame."""

    def __init__(self, frame: bytes) -> None:
        self.stdin = self
        self.stdout = asyncio.StreamReader()
        self.stdout.feed_data(len(frame).to_bytes(4, "big") + frame)

    def write(self, frame: bytes) -> None:
        """Ignore the request."""

    async def drain(self) -> None:
        """Return at once: the request is ignored."""


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (b"[" * 100_000, "is nested deeper than 100 levels"),
        (b'{"error":"\\ud800"}', "has text that is no Unicode"),
        (b'{"result":1%s}' % (b"0" * 400), "has an integer of 401 characters"),
    ],
    ids=["deep", "surrogate", "large integer"],
)
async def test_a_malformed_answer_is_an_error(frame: bytes, error: str) -> None:
    worker = WorkerProcess(cast("Any", Pipes(frame)), "solver s", io.BytesIO(), 1_000_000)
    with pytest.raises(InvalidInput, match=f"solver s: its process said what is no answer: {error}"):
        await worker.ask({}, HANG_SECONDS, "to answer", "while it thought")


async def test_the_limits_are_examined_in_a_thread() -> None:
    threads: list[threading.Thread] = []

    def excess(pid: int) -> str:
        threads.append(threading.current_thread())
        return "it has started too many processes"

    family = SimpleNamespace(
        kill=lambda: threads.append(threading.current_thread()),
        end=lambda seconds: threads.append(threading.current_thread()),
    )
    worker = WorkerProcess(cast("Any", SimpleNamespace(pid=1, returncode=None)), "solver s", io.BytesIO(), 1)
    with tempfile.TemporaryFile() as log:
        await worker_client._watch(worker, log, cast("Any", SimpleNamespace(excess=excess)), cast("Any", family))
    assert worker.excess == "it has started too many processes"
    assert len(threads) == 3
    assert threading.main_thread() not in threads
