"""Tests of what ends a command: signals, SIGHUP, and an output whose reader is gone."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hopyard.cli.interrupts import Interrupts
from hopyard.cli.output import OutputGuard, discard, reader_closed, say, show
from tests.timing import HANG_SECONDS


async def events(interrupts: Interrupts) -> tuple[bool, bool]:
    """Return whether the first and the second event are set after the signals sent so far were handled."""
    for _ in range(3):
        await asyncio.sleep(0)
    return interrupts.first.is_set(), interrupts.second.is_set()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGHUP, 129)])
async def test_the_first_signal_requests_an_orderly_end_and_sets_the_exit_code(
    number: signal.Signals, code: int
) -> None:
    with Interrupts() as interrupts:
        os.kill(os.getpid(), number)
        assert await events(interrupts) == (True, False)
        assert interrupts.exit_code == code


async def test_only_a_second_sigint_or_sigterm_requests_an_immediate_end() -> None:
    with Interrupts() as interrupts:
        for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGINT, signal.SIGHUP):
            os.kill(os.getpid(), number)
            assert await events(interrupts) == (True, False)
        interrupts.close_output()
        assert await events(interrupts) == (True, False)
        assert interrupts.to_quit == "Ctrl-C again"
        os.kill(os.getpid(), signal.SIGTERM)
        assert await events(interrupts) == (True, True)
        assert interrupts.exit_code == 129  # that of the first event


async def test_an_ignored_sighup_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            assert await events(interrupts) == (False, False)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.fixture
def pipe() -> Iterator[tuple[int, io.TextIOWrapper]]:
    """The reading end of a pipe, and a stream that writes to it."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        yield reader, stream


async def test_a_closed_output_is_found_without_a_write(
    pipe: tuple[int, io.TextIOWrapper], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, stream = pipe
    monkeypatch.setattr(sys, "stdout", stream)
    with Interrupts() as interrupts:
        os.close(reader)
        async with asyncio.timeout(HANG_SECONDS):
            await interrupts.first.wait()
        assert interrupts.exit_code == 141
        assert interrupts.to_quit == "Ctrl-C twice"
        assert interrupts.because == " because its output was closed"


def test_writes_to_closed_outputs_raise_no_error(
    pipe: tuple[int, io.TextIOWrapper], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, stream = pipe
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    said: list[str] = []
    with OutputGuard(lambda: said.append("closed")) as guard:
        say("somebody reads this")
        assert (said, reader_closed(stream)) == ([], False)
        os.close(reader)
        assert reader_closed(stream)
        say("nobody reads this")
        show("or this")
        assert said == ["closed"]
        guard.check()
        assert said == ["closed"]  # the output is the null device now
    assert sys.stdout is stream
    stream.write("after the guard")  # what the interpreter flushes at its exit
    stream.flush()


def test_a_full_disk_loses_messages_but_not_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full, open("/dev/full", "w", encoding="utf-8") as also_full:
        monkeypatch.setattr(sys, "stdout", full)
        monkeypatch.setattr(sys, "stderr", also_full)
        with OutputGuard(lambda: None):
            say("a message")
            with pytest.raises(OSError, match="No space left"):
                show("the result")
        discard(full)
        discard(also_full)


def test_a_stream_without_a_file_has_no_reader_that_closes_it() -> None:
    assert not reader_closed(io.StringIO())
    discard(io.StringIO())


@pytest.mark.parametrize("arguments", [["--help"], ["plugins"], ["plugins", "--json"], ["run", "--help"]])
def test_a_command_whose_output_nobody_reads_ends_quietly(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        found = subprocess.run(
            [sys.executable, "-m", "hopyard.cli.main", *arguments],
            check=False,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=HANG_SECONDS,
        )
    finally:
        os.close(writer)
    assert (found.returncode, found.stderr) == (0, "")


def test_a_command_without_stdout_and_stderr_works(tmp_path: Path) -> None:
    file = tmp_path / "found"
    script = f'"{sys.executable}" -m hopyard.cli.main experiments --data /nowhere >&- 2>&-; echo $? > "{file}"'
    subprocess.run(["sh", "-c", script], check=True, timeout=HANG_SECONDS)
    assert file.read_text() == "1\n"
