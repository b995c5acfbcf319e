"""Ports for services that must know theirs before they start, or keep it over their restarts."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from typing import Final

_FIRST: Final = 12_000
_EACH: Final = 1_000
"""Below 32768, from where the system takes ports for those who do not ask for one: nobody is given one of these by chance."""


def free_port() -> int:
    """A port that nobody listens on, and that no other test is given."""
    for port in _ports:
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable: there is always another one")


def _mine() -> Iterator[int]:
    """Those of this process: workers of one test run have ranges of their own, and begin anywhere in it."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first, number = _FIRST + _EACH * (worker % 16), random.SystemRandom().randrange(_EACH)
    while True:
        number = (number + 1) % _EACH
        yield first + number


_ports: Final = _mine()
