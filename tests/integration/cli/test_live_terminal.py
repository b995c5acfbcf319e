"""Tests of the live view on a pseudo terminal: keys, resizes, signals, and that the terminal is always restored."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.harness import REPOSITORY
from tests.pty_session import PtySession

PROGRAM = [sys.executable, "-m", "tests.integration.cli.live_program"]
COMMAND = shlex.join(PROGRAM)


@contextmanager
def session(*command: str, size: tuple[int, int] = (80, 24)) -> Iterator[PtySession]:
    with PtySession(command or PROGRAM, {"PYTHONPATH": str(REPOSITORY)}, size, REPOSITORY) as opened:
        yield opened


@contextmanager
def viewed(*options: str) -> Iterator[PtySession]:
    """Show the view, and check that it has taken over the terminal."""
    with session(*PROGRAM, *options) as opened:
        opened.wait_for(r"\? keys  q quit")
        assert opened.covered()
        assert not opened.cooked
        yield opened


def test_keys_select_sort_and_leave_and_the_terminal_is_restored() -> None:
    with viewed() as view:
        view.type("\x1b[Bj")
        view.wait_for(r"(?m)^>2 ")
        view.type("s")
        view.wait_for("sort: value")
        view.type("?")
        view.wait_for("any key goes back")
        view.type("\x1b")
        view.wait_for("sort: value")
        view.type("p")
        view.wait_for(r"y yes, n no:  pause job 2")
        view.type("n")
        view.wait_for("sort: value")
        view.type("q")
        assert view.wait() == 0
        assert view.restored
        # What was written to stderr meanwhile did not disturb the view, and is shown after it.
        assert view.output.index("performed leave") > view.output.index("\x1b[?1049l")
        assert "ended by a key" in view.screen.text()


def test_the_view_follows_the_size_of_the_terminal() -> None:
    with viewed() as view:
        view.resize(120, 40)
        view.wait_for(r"best accuracy +last")
        assert view.screen.text().splitlines()[39].startswith("? keys")
        view.resize(40, 10)
        view.wait_for(r"(?m)^\? keys  q quit")
        assert view.screen.text().splitlines()[9].startswith("? keys")


def test_a_frame_is_written_only_where_it_has_changed() -> None:
    with viewed() as view:
        size = len(view.output)
        view.type("j")
        view.wait_for(r"(?m)^>\d ")
        frames = view.output[size:].split("\x1b[?2026h")[1:]
        assert all("digits" not in frame or frame.count("\x1b[K") <= 8 for frame in frames)
        assert all("\x1b[2J" not in frame for frame in frames)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_restore_the_terminal(number: signal.Signals) -> None:
    with viewed() as view:
        view.process.send_signal(number)
        assert view.wait() == 0
        assert view.restored
        assert "ended by a signal" in view.screen.text()


def test_ctrl_c_is_a_signal_and_not_a_key() -> None:
    with viewed() as view:
        view.type("\x03")
        assert view.wait() == 0
        assert view.restored
        assert "ended by a signal" in view.screen.text()


def test_an_exception_restores_the_terminal_and_is_shown() -> None:
    with viewed("--raise") as view:
        view.type("q")
        assert view.wait() == 1
        assert view.restored
        assert "RuntimeError: the view failed" in view.screen.text()


def test_sigquit_restores_the_terminal_and_ends_the_process() -> None:
    with viewed() as view:
        view.type("\x1c")
        assert view.wait() == -signal.SIGQUIT
        assert view.restored


@contextmanager
def shell() -> Iterator[PtySession]:
    """An interactive shell with job control. Its prompt is `ready>`."""
    with session("bash", "--norc", "--noprofile", "-i") as opened:
        opened.type("PS1='rea''dy> '\n")
        opened.wait_for("(?m)^ready>")
        yield opened


def test_ctrl_z_restores_the_terminal_and_fg_shows_the_view_again() -> None:
    with shell() as view:
        view.type(f"{COMMAND}\n")
        view.wait_for(r"\? keys  q quit")
        view.type("\x1a")
        view.wait_for("Stopped")
        view.wait_for("(?m)^ready>")
        assert not view.covered()
        view.type("echo in the shell\n")
        view.wait_for("(?m)^in the shell")
        view.type("fg\n")
        view.wait_for(r"\? keys  q quit")
        assert view.covered()
        view.type("j")
        view.wait_for(r"(?m)^>\d ")
        view.type("q")
        view.wait_for("ended by a key")
        view.wait_for("(?m)^ready>")
        assert not view.covered()


def test_in_the_background_nothing_is_drawn_over_the_shell_and_no_key_is_read() -> None:
    with shell() as view:
        view.type(f"{COMMAND} &\n")
        view.wait_for(r"digits RUNNING  3 running")
        view.type("echo q is no key\n")
        view.wait_for("(?m)^q is no key")
        assert "\x1b[?1049h" not in view.output
        view.type("kill %1\n")
        view.wait_for("ended by a signal")


def test_without_a_terminal_as_stdin_no_keys_are_read() -> None:
    with session("sh", "-c", f"exec {COMMAND} < /dev/null") as view:
        view.wait_for(r"(?m)^ job ")
        assert view.cooked
        view.type("q")
        view.process.send_signal(signal.SIGTERM)
        view.wait_for("ended by a signal")
        assert view.restored
