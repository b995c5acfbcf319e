"""The addresses of a service: where it listens, the file that names it, and which hosts others can use to reach it."""

from __future__ import annotations

import ipaddress
import os
import tempfile
from pathlib import Path

from hopyard.errors import Conflict, InvalidInput, NotFound


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # a name, which may mean anything


def join(host: str, port: int) -> str:
    """HOST:PORT, with the brackets that an IPv6 address needs."""
    bare = host.strip("[]")
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"


def check_bind(host: str, *, insecure: bool) -> None:
    """Refuse to listen beyond this machine without encryption, unless that is said aloud.

    Raises:
        Conflict: The host is not loopback and `insecure` is False.
    """
    if not insecure and not is_loopback(host):
        raise Conflict(
            f"refusing to listen on {host}: whoever reaches that address could run code here, and TLS is not "
            "available yet; "
            "listen on 127.0.0.1, or say --insecure on a network that you trust"
        )


def reachable(host: str) -> str:
    """The host by which processes of this machine reach a server that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host.strip("[]"), host)  # noqa: S104


def address_file(data: Path, name: str) -> Path:
    """The file in which the service `name` with the data folder `data` says where it listens."""
    return data / f"{name}.address"


def read_address(data: Path, name: str) -> str:
    """Where the service `name` of the data folder `data` listens, as HOST:PORT.

    Raises:
        NotFound: It does not run there (or has not said so yet).
    """
    path = address_file(data, name)
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError as error:
        raise NotFound(f"{path}: no such file, so no {name} runs with this data folder") from error


def write_address(data: Path, name: str, address: str) -> None:
    """Write the address file so that a reader sees all of it or nothing."""
    data.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=data, prefix=f".{name}.address.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(address + "\n")
        os.replace(temporary, address_file(data, name))
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def remove_address(data: Path, name: str, address: str) -> None:
    """Remove the address file if it still holds this address: a successor's stays."""
    path = address_file(data, name)
    try:
        if path.read_text(encoding="utf-8").strip() == address:
            path.unlink()
    except FileNotFoundError:
        return  # removed already, by hand or with the whole folder


def check_host(host: str) -> None:
    """Refuse to be known by an address that means all of them: others are told it, and could not come back by it.

    Raises:
        InvalidInput: `host` is 0.0.0.0, :: or empty.
    """
    try:
        unspecified = ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:  # a name
        unspecified = not host
    if unspecified:
        raise InvalidInput(
            f"--host needs the address by which other computers reach this one, found {host!r}: it is told to them; "
            "`hostname -I` lists this computer's addresses"
        )
