"""Finds the scheduler: a given address, or the one that a scheduler on this computer wrote to its folder."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from hopyard._net.server import read_address
from hopyard.errors import NotFound

_LOOK_SECONDS: Final = 0.01


async def scheduler_at(given: str) -> str:
    """Return the scheduler's HOST:PORT; for a folder, wait until a scheduler has written its address there.

    An agent can therefore start before its scheduler, and finds a restarted scheduler at a new address.
    """
    if not is_folder(given):
        return given
    while True:
        try:
            return read_address(Path(given), "scheduler")
        except NotFound:
            await asyncio.sleep(_LOOK_SECONDS)


def is_folder(given: str) -> bool:
    """Return whether this is a path, not HOST:PORT."""
    return "/" in given
