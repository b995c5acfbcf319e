"""Ports for services that must know theirs before they start, or keep it over their restarts.

A port is reserved for this process until it ends, in all test runs on this host: also while no service listens on it.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from typing import Final

_FIRST: Final = 12_000
_END: Final = 28_000
"""Below 32768, where the system's range for connections and for port 0 begins: the system gives none of these to anybody."""


def free_port() -> int:
    """Return a port that nobody listens on and that no other test of any run is given."""
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
    """All ports of the range, beginning anywhere; the seed of a test run plays no part."""
    count = _END - _FIRST
    begin = random.SystemRandom().randrange(count)
    for number in range(count):
        yield _FIRST + (begin + number) % count


def _reserved(port: int) -> socket.socket | None:
    """Reserve a port on this machine; None: another test has it.

    The reservation is a name in the kernel's abstract namespace. It needs no file and ends with its process, however that ends.
    """
    one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        one.bind(f"\0hopyard-test-port-{port}")
    except OSError:
        one.close()
        return None
    return one


_reservations: Final[list[socket.socket]] = []
