"""Ports for services that must know their port before they start, or have the same port after a restart.

A port is reserved for this process until the process ends, for all test runs on this host, even while no service listens on it.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from typing import Final

_FIRST: Final = 12_000
_END: Final = 28_000
"""Below 32768, where the system's own range for connections and for port 0 begins: the system assigns none of these ports."""


def free_port() -> int:
    """Return a port on which no process listens and which no other test of any run on this host receives."""
    for port in _candidates():
        if (reservation := _reserved(port)) is None:
            continue
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                reservation.close()
                continue
        _reservations.append(reservation)
        return port
    raise AssertionError(f"no port from {_FIRST} to {_END - 1} is free")


def _candidates() -> Iterator[int]:
    """Yield all ports of the range, beginning at a random one that does not depend on the seed of the test run."""
    count = _END - _FIRST
    begin = random.SystemRandom().randrange(count)
    for number in range(count):
        yield _FIRST + (begin + number) % count


def _reserved(port: int) -> socket.socket | None:
    """Reserve a port on this host; return None if another test has it.

    The reservation is a name in the kernel's abstract socket namespace. It needs no file and disappears when its process ends.
    """
    one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        one.bind(f"\0hopyard-test-port-{port}")
    except OSError:
        one.close()
        return None
    return one


_reservations: Final[list[socket.socket]] = []
