"""Parses the specifications of clients outside of the event loop: a large one takes seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from hopyard.errors import InvalidInput
from hopyard.spec import ExperimentSpec, load_spec, placed
from hopyard_scheduler.experiments.program import program_of

P = ParamSpec("P")
T = TypeVar("T")


class SpecThread:
    """Runs functions that parse specifications in a thread, one at a time, so that the event loop keeps enough CPU time."""

    def __init__(self) -> None:
        self._one = asyncio.Lock()

    async def load(self, text: str, source: str) -> ExperimentSpec:
        """Return the specification in the text of an experiment file.

        Args:
            text: The text.
            source: The name of the file for error messages.

        Raises:
            InvalidInput: The text is not a valid specification, or exceeds a limit. The message lists all errors.
        """
        return await self._run(load_spec, text, source)

    async def locate(self, error: InvalidInput, text: str, source: str) -> InvalidInput:
        """Return an error about a field of an experiment file with the place of the field (see `hopyard.spec.placed`)."""
        return await self._run(placed, error, text, source)

    async def payload(self, make: Callable[[], dict[str, str]]) -> dict[str, str]:
        """Return the payload that `make` returns, of an experiment's first event. Its program is parsed, and then cached."""

        def made() -> dict[str, str]:
            payload = make()
            program_of(payload)
            return payload

        return await self._run(made)

    async def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._one:
            return await asyncio.to_thread(function, *args, **kwargs)
