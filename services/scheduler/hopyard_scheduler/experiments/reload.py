"""Repeats commands whose stream left memory before the engine handled them."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from hopyard_engine.core import UnknownStreamError

_P = ParamSpec("_P")
_T = TypeVar("_T")


def reloads(command: Callable[_P, Awaitable[_T]]) -> Callable[_P, Awaitable[_T]]:
    """Decorate a command that loads the stream of an experiment, checks it and applies an event to it.

    The stream can leave memory between the check and the event, because it has ended or was deleted. The command then runs again: it
    loads the stream again, or raises `NotFound`. A command that applies several events must be idempotent.
    """

    @functools.wraps(command)
    async def repeated(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        while True:
            try:
                return await command(*args, **kwargs)
            except UnknownStreamError:
                continue

    return repeated
