"""Selects the network interface for gloo on hosts whose host name resolves to a loopback address."""

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
    """Within the context, in which a process group is created, let gloo listen on an interface that the other ranks can reach.

    By default, gloo listens on the address of the host name. On many hosts that is a loopback address (127.0.1.1),
    which other hosts cannot reach. The interface is the one for connections to the first other host in `addresses`.

    Nothing is changed if `addresses` names no other host, if that interface is not known or is a loopback interface, or if
    the environment variable GLOO_SOCKET_IFNAME is set, which then selects the interface.

    Args:
        addresses: The hosts of all ranks, ordered by rank; empty if they are not known.
        rank: The rank of this process.
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
    """Return the name of this host's network interface for connections to `host`.

    Return None if it is a loopback interface or unknown, or if the system is not Linux.
    """
    if not sys.platform.startswith("linux"):
        return None
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # This sends nothing.
            mine = ipaddress.ip_address(probe.getsockname()[0].partition("%")[0])
    except OSError:
        return None
    if mine.is_loopback:
        return None
    return next((name for _, name in socket.if_nameindex() if mine in _addresses(name)), None)


def _addresses(interface: str) -> Iterator[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Yield the IP addresses of a network interface of this host, if any: the first IPv4 address, and all IPv6 addresses."""
    import fcntl  # Not available on Windows.

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            found = fcntl.ioctl(any_socket, _SIOCGIFADDR, struct.pack("256s", interface.encode()))
        except OSError:  # It has no IPv4 address.
            pass
        else:
            yield ipaddress.IPv4Address(found[20:24])
    if os.path.exists(_IPV6):
        with open(_IPV6, encoding="ascii") as file:
            for line in file:
                address, *_, name = line.split()
                if name == interface:
                    yield ipaddress.IPv6Address(bytes.fromhex(address))
