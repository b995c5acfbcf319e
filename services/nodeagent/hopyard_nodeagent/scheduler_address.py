"""Where the scheduler is: an address, or what a scheduler on this computer wrote into its folder."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from hopyard._net.server import read_address
from hopyard.errors import NotFound

_LOOK_SECONDS: Final = 0.01


async def scheduler_at(given: str) -> str:
    """The scheduler's HOST:PORT; of a folder the address in it, waited for until a scheduler has written it.

    So an agent can be started together with the scheduler, and finds one that was started anew at another address.
    """
    if not is_folder(given):
        return given
    while True:
        try:
            return read_address(Path(given), "scheduler")
        except NotFound:
            await asyncio.sleep(_LOOK_SECONDS)


def is_folder(given: str) -> bool:
    """Whether this is a path, not HOST:PORT."""
    return "/" in given
