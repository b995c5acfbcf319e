"""Tests of how the server in a policy process ends."""

from __future__ import annotations

import sys
import threading
from itertools import count
from types import FrameType
from typing import Any, Final

import pytest

from hopyard._runtime.policy_process.server import PolicyServer
from hopyard.errors import HopyardError, Unauthenticated, Unavailable
from tests.timing import HANG_SECONDS

pytestmark = pytest.mark.quick

_RUN: Final = PolicyServer.run.__code__

_WAITS: Final = 3
"""Number of the line of `run` that waits."""


def nowhere() -> tuple[str, str]:
    raise Unavailable("there is no cluster")


def never(_: object) -> Any:
    raise AssertionError("no experiment asks for a policy")


def lines_of(stop_at: int | None) -> list[bool]:
    """Stop a server at a line of its code, as a signal handler would. Return for each executed line whether it is in `run`.

    The start of a thread takes a different number of lines in each run. A server that would wait before it reaches the line is
    stopped at the last line before it waits.

    Args:
        stop_at: Number of the line; None: stop before the server runs.
    """
    server = PolicyServer("mine", never, nowhere)
    seen: list[bool] = []
    numbers = count()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            seen.append(frame.f_code is _RUN)
            if next(numbers) == stop_at or (seen[-1] and seen.count(True) == _WAITS):
                server.stop()
        return trace

    def run() -> None:
        sys.settrace(trace)
        server.run()

    if stop_at is None:
        server.stop()
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(HANG_SECONDS)
    assert not thread.is_alive(), f"stopped at line {stop_at} it does not end"
    return seen


def test_it_ends_at_whatever_moment_a_signal_comes() -> None:
    """Check each line up to the wait, including the lines of the functions that they call."""
    own = [number for number, of_run in enumerate(lines_of(None)) if of_run]
    for moment in range(own[_WAITS - 1]):
        lines_of(moment)
    lines_of(10**9)


def test_it_ends_with_the_error_if_there_is_no_token() -> None:
    def without_token() -> tuple[str, str]:
        raise Unauthenticated("there is no token")

    raised: list[HopyardError] = []

    def run() -> None:
        with pytest.raises(Unauthenticated, match="there is no token") as caught:
            PolicyServer("mine", never, without_token).run()
        raised.append(caught.value)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(HANG_SECONDS)
    assert len(raised) == 1
