"""Calls between services of one process: from the stub to the servicer, without a wire between.

A server offers what it serves under its address while it serves; a channel that was opened with `local` looks there first. What
can be seen of a call is the same: its deadline, its errors, what it answers. So embedded services need not know that they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from hopyard.errors import HopyardError, TimedOut

Handler = Callable[[Any], Awaitable[Any]]
"""Takes a request message; raises `HopyardError` only."""

_OFFERED: Final[dict[tuple[str, asyncio.AbstractEventLoop], Mapping[str, Handler]]] = {}


def offer(address: str, handlers: Mapping[str, Handler]) -> None:
    """From now on calls from this event loop to the address may take these handlers, by method (/package.Service/Method)."""
    _OFFERED[address, asyncio.get_running_loop()] = handlers


def withdraw(address: str) -> None:
    """No call takes the way through this process any more; safe where nothing was offered."""
    _OFFERED.pop((address, asyncio.get_running_loop()), None)


def handler_of(address: str, method: str) -> Handler | None:
    """The handler of a method at an address, if it is offered in this event loop."""
    return _OFFERED.get((address, asyncio.get_running_loop()), {}).get(method)


async def call(handler: Handler, request: Any, method: str, seconds: float) -> Any:
    """Make a call; raises `TimedOut` after so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            return await handler(request)
    except HopyardError:
        raise
    except TimeoutError as error:
        raise TimedOut(f"{method}: no answer within {seconds:g} s") from error
