from __future__ import annotations

import asyncio
import errno
import logging

import pytest

from hopyard._net.server import Background
from hopyard.errors import Conflict, Internal

pytestmark = pytest.mark.quick


async def forever(log: list[str], name: str) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        log.append(name)


async def fail() -> None:
    raise OSError("disk full")


async def test_tasks_end_the_youngest_first_and_twice_is_once() -> None:
    log: list[str] = []
    background = Background("svc")
    first = background.start(forever(log, "first"), name="first")
    background.start(forever(log, "second"), name="second")
    await asyncio.sleep(0)
    assert first.get_name() == "svc.first"
    await background.stop()
    await background.stop()
    assert log == ["second", "first"]
    with pytest.raises(RuntimeError, match="task late cannot start"):
        background.start(forever(log, "late"), name="late")


async def test_a_failure_is_loud_and_ends_the_wait(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []

    async def serve() -> None:
        async with Background("svc") as background:
            background.start(forever(log, "other"), name="other")
            background.start(fail(), name="writer")
            await background.wait(asyncio.Event())

    with pytest.raises(OSError, match="disk full"):
        await serve()
    assert log == ["other"]
    (record,) = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert record.getMessage() == "background task svc.writer failed"


async def test_a_failure_that_says_what_to_do_is_raised_and_not_buried_under_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def refuse() -> None:
        raise Conflict("the port is taken")

    background = Background("svc")
    background.start(refuse(), name="server")
    with pytest.raises(Conflict, match="the port is taken"):
        await background.wait(asyncio.Event())
    with pytest.raises(Conflict):
        await background.stop()
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


async def test_the_wait_ends_with_the_stop_event() -> None:
    stop = asyncio.Event()
    async with Background("svc") as background:
        waiting = asyncio.create_task(background.wait(stop))
        await asyncio.sleep(0)
        stop.set()
        await waiting
        assert background.failure is None


@pytest.mark.parametrize(
    ("error", "message", "traced"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/data/x"), "failed: /data/x: No space left", False),
        (Internal("a bug"), "background task svc.writer failed", True),
        (OSError("odd"), "background task svc.writer failed", True),
    ],
)
async def test_only_what_does_not_explain_itself_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture, error: Exception, message: str, traced: bool
) -> None:
    async def raising() -> None:
        raise error

    background = Background("svc")
    background.start(raising(), name="writer")
    with pytest.raises(type(error)):
        await background.wait(asyncio.Event())
    (record,) = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert message in record.getMessage()
    assert bool(record.exc_info) is traced
