"""By which network interface a host reaches others: what gloo has to be told where the host's own name says something else."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

_VARIABLE: Final = "GLOO_SOCKET_IFNAME"
_SIOCGIFADDR: Final = 0x8915
_IPV6: Final = "/proc/net/if_inet6"


@contextmanager
def reachable(addresses: Sequence[str], rank: int) -> Iterator[None]:
    """While a process group of gloo is made: its ranks listen where the others reach them.

    Else gloo listens at the address of the host's own name, which on many hosts is a loopback one (127.0.1.1), where others look for
    it in vain. Who sets GLOO_SOCKET_IFNAME knows better.

    Args:
        addresses: The hosts of all ranks, by rank; none: they are not known.
        rank: Which one this is.
    """
    others = [each for each in addresses if each != addresses[rank]]
    interface = interface_to(others[0]) if others and _VARIABLE not in os.environ else None
    if interface is None:
        yield
        return
    os.environ[_VARIABLE] = interface
    try:
        yield
    finally:
        del os.environ[_VARIABLE]


def interface_to(host: str) -> str | None:
    """The network interface by which this host reaches another one; None: a loopback one, or it cannot be told (only Linux says it)."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # It sends nothing.
            mine = ipaddress.ip_address(probe.getsockname()[0].partition("%")[0])
    except OSError:
        return None
    if mine.is_loopback:
        return None
    return next((name for _, name in socket.if_nameindex() if mine in _addresses(name)), None)


def _addresses(interface: str) -> Iterator[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """The addresses of an interface of this host; of version 4 the first one."""
    import fcntl  # There is none on Windows.

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            found = fcntl.ioctl(any_socket, _SIOCGIFADDR, struct.pack("256s", interface.encode()))
        except OSError:  # It has none.
            pass
        else:
            yield ipaddress.IPv4Address(found[20:24])
    if os.path.exists(_IPV6):
        with open(_IPV6, encoding="ascii") as file:
            for line in file:
                address, *_, name = line.split()
                if name == interface:
                    yield ipaddress.IPv6Address(bytes.fromhex(address))
