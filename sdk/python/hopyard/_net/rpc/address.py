"""Addresses of services: unix:/PATH names a Unix socket on this computer, and HOST:PORT a TCP port."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hopyard.errors import InvalidInput

SOCKET_SCHEME: Final = "unix:"
"""The beginning of the address of a Unix socket; the absolute path of the socket follows."""

_LOOPBACK: Final = "127.0.0.1"


def is_socket(address: str) -> bool:
    """Return whether an address names a Unix socket."""
    return address.startswith(SOCKET_SCHEME)


def socket_file(address: str) -> Path:
    """Return the path of the Unix socket that an address names; `is_socket` must be True for the address."""
    return Path(address.removeprefix(SOCKET_SCHEME))


def host_of(address: str) -> str:
    """Return the host of an address, without the brackets of an IPv6 address; 127.0.0.1 for a Unix socket."""
    return _LOOPBACK if is_socket(address) else address.rpartition(":")[0].strip("[]")


def check_address(address: str) -> None:
    """Raise an error if a text is not an address of a service.

    Raises:
        InvalidInput: It is neither HOST:PORT nor unix: with an absolute path.
    """
    if is_socket(address) and socket_file(address).is_absolute():
        return
    host, separator, port = address.rpartition(":")
    if is_socket(address) or not separator or not host or not port.isdigit():
        raise InvalidInput(
            f"address {address!r}: a service's address is unix:/PATH for a socket on this computer, or HOST:PORT, such as "
            "192.168.0.10:4650"
        )
