"""Tests of work on threads that can be abandoned after a time limit."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from hopyard_hpgen import killable_threads as module
from hopyard_hpgen.killable_threads import GivenUp, Threads, WorkTimeout, give_up
from tests.timing import HANG_SECONDS

pytestmark = pytest.mark.quick


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads("tried")
    yield made
    made.close()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    found = threading.Event()
    yield found
    found.set()


def test_work_answers_what_its_function_returns_or_raises(threads: Threads) -> None:
    work = threads.start(lambda: 6 * 7)
    assert work.wait(HANG_SECONDS)
    assert work.result() == 42
    assert work.wait(0)
    failing = threads.start(lambda: int("nothing"))
    assert failing.wait(HANG_SECONDS)
    with pytest.raises(ValueError, match="nothing"):
        failing.result()


def test_even_what_ends_a_process_is_a_result(threads: Threads) -> None:
    work = threads.start(lambda: exit(3))
    assert work.wait(HANG_SECONDS)
    with pytest.raises(SystemExit):
        work.result()


def test_one_thread_does_all_work_that_comes_one_after_the_other(threads: Threads) -> None:
    seen = set()
    for _ in range(20):
        work = threads.start(threading.current_thread)
        assert work.wait(HANG_SECONDS)
        seen.add(work.result())
    assert len(seen) == 1


def test_work_under_way_keeps_its_thread_and_other_work_gets_another(threads: Threads, gate: threading.Event) -> None:
    slow = threads.start(gate.wait)
    assert not slow.wait(0)
    with pytest.raises(RuntimeError, match="not done"):
        slow.result()
    quick = threads.start(lambda: 1)
    assert quick.wait(HANG_SECONDS)
    gate.set()
    assert slow.wait(HANG_SECONDS)


async def test_a_loop_in_python_is_given_up_and_its_thread_ends(threads: Threads) -> None:
    def loop() -> None:
        while True:
            pass

    work = threads.start(loop)
    with pytest.raises(WorkTimeout, match=r"longer than 0\.1 s"):
        await threads.finish(work, 0.1)
    assert work.thread is not None
    await asyncio.to_thread(work.thread.join, HANG_SECONDS)
    assert not work.thread.is_alive()
    assert not work.done


@pytest.mark.merge
async def test_handlers_of_exceptions_do_not_keep_it_and_one_that_catches_all_is_told_again(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "INSIST_SECONDS", 0.2)
    caught: list[GivenUp] = []
    inside = False

    def stubborn() -> None:
        nonlocal inside
        while len(caught) < 2:
            try:
                while True:
                    with suppress(Exception):
                        inside = True
            except GivenUp as error:
                caught.append(error)

    work = threads.start(stubborn)
    while not inside:  # noqa: ASYNC110 - another thread, and no lock that it might take with it
        await asyncio.sleep(0.01)
    assert give_up(work)
    assert work.thread is not None
    while work.thread.is_alive():  # noqa: ASYNC110 - another thread
        await asyncio.sleep(0.01)
    assert len(caught) == 2


async def test_work_that_is_done_cannot_be_given_up(threads: Threads) -> None:
    work = threads.start(lambda: 1)
    assert work.wait(HANG_SECONDS)
    assert not give_up(work)
    assert await threads.finish(work, HANG_SECONDS) == 1


async def test_each_step_has_its_time(threads: Threads) -> None:
    """Check that the limit applies to each step of the work, and that `stop` is asked about the step that exceeds it."""
    gates = [threading.Event() for _ in range(4)]
    at = [object() for _ in gates]
    step = 0

    def steps() -> int:
        nonlocal step
        for step, gate in enumerate(gates):  # noqa: B007
            gate.wait()
        return step

    asked: list[object] = []

    def stop(doing: object) -> bool:
        asked.append(doing)
        index = at.index(doing)
        # Let the step end: it was only slow.
        gates[index].set()
        return False

    work = threads.start(steps)
    assert await threads.finish(work, 0.1, lambda: at[step], stop) == 3
    assert [doing for index, doing in enumerate(asked) if doing not in asked[:index]] == at


async def test_a_caller_that_leaves_gives_the_work_up(threads: Threads, gate: threading.Event) -> None:
    work = threads.start(gate.wait)
    waiting = asyncio.create_task(threads.finish(work, HANG_SECONDS))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.set()
    assert work.thread is not None
    await asyncio.to_thread(work.thread.join, HANG_SECONDS)
    assert not work.done


async def test_threads_take_turns_faster_while_somebody_waits(threads: Threads, gate: threading.Event) -> None:
    before = sys.getswitchinterval()
    waiting = [asyncio.create_task(threads.finish(threads.start(gate.wait), HANG_SECONDS)) for _ in range(2)]
    await asyncio.sleep(0)
    assert sys.getswitchinterval() < before
    gate.set()
    await asyncio.gather(*waiting)
    assert sys.getswitchinterval() == before
