"""Finds the address of the scheduler: it is given, or a scheduler on this computer has written it to its data folder."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from hopyard._net.rpc.address import is_socket
from hopyard._net.server import read_address
from hopyard.errors import NotFound

_LOOK_SECONDS: Final = 0.01


async def scheduler_at(given: str) -> str:
    """Return the address of the scheduler, unix:/PATH or HOST:PORT.

    Args:
        given: The address, or the data folder of a scheduler on this computer. For a folder, wait until a scheduler has written its
            address there: an agent can start before its scheduler, and finds a restarted scheduler at a new address.
    """
    if not is_folder(given):
        return given
    while True:
        try:
            return read_address(Path(given), "scheduler")
        except NotFound:
            await asyncio.sleep(_LOOK_SECONDS)


def is_folder(given: str) -> bool:
    """Return whether the text is a path (it contains a /) and not an address."""
    return "/" in given and not is_socket(given)
