"""Finds the scheduler of a cluster by its address, or by the address file in its data directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

from hopyard._common.private_files import check_own_folder
from hopyard.errors import InvalidInput, Unavailable

DEFAULT_DATA: Final = Path("hopyard-data")
"""Default data directory of a local cluster."""

SERVER_VARIABLE: Final = "HOPYARD_SERVER"
DATA_VARIABLE: Final = "HOPYARD_DATA"


def read_address(data: Path, service: str = "scheduler") -> str | None:
    """Return the address in the address file of a service in the data directory `data`, or None if there is no such file.

    A service writes the file `SERVICE.address` when it starts.

    Raises:
        InvalidInput: Another user could have written the file, to receive the token and the code of this user (`check_own_folder`).
    """
    try:
        address = (data / f"{service}.address").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    check_own_folder(data)
    return address or None


class ServerAddress(NamedTuple):
    """Where a scheduler is.

    Attributes:
        address: Its address, unix:/PATH or HOST:PORT.
        data: The data directory whose address file contains the address; None: the address was given.
    """

    address: str
    data: Path | None


def find_server(server: str | None, data: str | Path | None) -> ServerAddress:
    """Return the scheduler's address.

    Without arguments, the environment variable HOPYARD_SERVER is used, then HOPYARD_DATA, then `./hopyard-data`.

    Args:
        server: Address of the scheduler; None: read it from the data directory or the environment.
        data: Data directory of a running cluster; None: see above.

    Raises:
        InvalidInput: Both arguments are given, or another user could have written the address file.
        Unavailable: No cluster serves the data directory.
    """
    if server is not None and data is not None:
        raise InvalidInput("give server or data, not both")
    if server is None and data is None:
        server = os.environ.get(SERVER_VARIABLE) or None
    if server is not None:
        return ServerAddress(server, None)
    folder = Path(data if data is not None else os.environ.get(DATA_VARIABLE) or DEFAULT_DATA)
    address = read_address(folder)
    if address is None:
        raise Unavailable(
            f"no cluster serves {folder} ({folder / 'scheduler.address'} is missing); start one with "
            f"`hopyard up --data {folder}`, or name a running one with server=ADDRESS"
        )
    return ServerAddress(address, folder)
