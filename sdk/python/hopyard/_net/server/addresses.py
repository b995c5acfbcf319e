"""Addresses of services: checks of the address to listen on, and the address file, by which clients find a service."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from hopyard._common.private_files import check_own_folder, make_private_folder, write_private
from hopyard.errors import Conflict, InvalidInput, NotFound


def join(host: str, port: int) -> str:
    """Return HOST:PORT, with brackets around an IPv6 address."""
    bare = host.strip("[]")
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"


def check_bind(host: str | None, port: int, *, insecure: bool) -> None:
    """Raise an error if a server may not listen as requested.

    A Unix socket is always allowed. TCP has no encryption yet, so it needs `insecure`, on loopback too: other users of this computer
    can connect to a loopback port, and can take it over when its service ends.

    Args:
        host: The address to listen on; None: a Unix socket.
        port: The TCP port; 0: a free one.
        insecure: Whether the user accepts connections without encryption.

    Raises:
        InvalidInput: A port, or `insecure`, is given without a host.
        Conflict: `host` is given without `insecure`.
    """
    if host is None:
        if port or insecure:
            given = f"--port {port}" if port else "--insecure"
            raise InvalidInput(
                f"{given} is for TCP: add --host ADDRESS, or omit {given.split()[0]} to listen on a socket that only you can use"
            )
    elif not insecure:
        raise Conflict(
            f"refusing to listen on {host}: TCP is not encrypted, so whoever can read the traffic learns the tokens in it, and can run "
            "code as you; omit --host to listen on a socket that only you can use, or add --insecure on a network whose computers and "
            "users you trust"
        )


def tcp_port(host: str | None, port: int | None, default: int) -> int:
    """Return the TCP port for a server: `port`, if given, else `default` with a host, and 0 for a Unix socket."""
    if port is not None:
        return port
    return 0 if host is None else default


def reachable(host: str) -> str:
    """Return the address by which processes on this host reach a server that listens on `host`.

    It is a loopback address if `host` is a wildcard (0.0.0.0, :: or empty), else `host` itself.
    """
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host.strip("[]"), host)  # noqa: S104


def address_file(data: Path, name: str) -> Path:
    """Return the path of the file that contains the address of the service `name` with the data folder `data`."""
    return data / f"{name}.address"


def read_address(data: Path, name: str) -> str:
    """Return the address of the service `name` that uses the data folder `data`.

    After a crash of the service, its last address is returned.

    Raises:
        NotFound: There is no address file, because the service does not run or has not written its address yet.
        InvalidInput: Another user could have written the file (`check_own_folder`).
    """
    path = address_file(data, name)
    try:
        address = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError as error:
        raise NotFound(f"{path}: no such file, so no {name} runs with this data folder") from error
    check_own_folder(data)
    return address


def write_address(data: Path, name: str, address: str) -> None:
    """Write the address file of the service `name` in the folder `data` atomically; create the folder if it is missing.

    Both are private. Errors of the folder are those of `make_private_folder`.
    """
    make_private_folder(data)
    write_private(address_file(data, name), f"{address}\n".encode(), durable=False)


def remove_address(data: Path, name: str, address: str) -> None:
    """Delete the address file of the service `name` in the folder `data` if it still contains `address`.

    If a later service has replaced the file, it stays.
    """
    path = address_file(data, name)
    try:
        if path.read_text(encoding="utf-8").strip() == address:
            path.unlink()
    except FileNotFoundError:
        return  # A user deleted the file or its folder.


def check_host(host: str) -> None:
    """Raise an error if `host`, the address at which other hosts are to reach this host, is a wildcard.

    A server can listen on a wildcard address, but no client can connect to it.

    Raises:
        InvalidInput: `host` is 0.0.0.0, :: or empty.
    """
    try:
        unspecified = ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:  # A host name.
        unspecified = not host
    if unspecified:
        raise InvalidInput(
            f"--host needs the address by which other computers reach this one, found {host!r}; "
            "`hostname -I` lists this computer's addresses"
        )
