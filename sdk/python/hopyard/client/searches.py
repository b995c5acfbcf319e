"""The method of `AsyncClient` that searches with an objective function."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from hopyard.search import AsyncSearchHandle
    from hopyard.space import Space

DEFAULT_METRIC: Final = "value"
"""Name of the metric of an objective function, unless its search names one."""


class ClientSearches:
    """The part of `AsyncClient` for objective functions. `AsyncClient` is the class to use; it inherits the method."""

    async def search(
        self,
        function: Callable[..., Any],
        space: Space | Mapping[str, Any],
        *,
        metric: str | Mapping[str, Any] = DEFAULT_METRIC,
        mode: Literal["max", "min"] | None = None,
        jobs: int | None = None,
        max_iterations: int | None = None,
        max_time: float | str | None = None,
        slots: int | None = None,
        policy: str | Mapping[str, Any] | None = None,
        generator: str | Mapping[str, Any] | None = None,
        folder: str | Path | None = None,
        interpreter: str = "",
        **fields: Any,
    ) -> AsyncSearchHandle:
        """Search the best hyperparameters of a Python function, and return a handle. `Client.search` has an example.

        Args:
            function: The objective function, defined with `def`. It is called with a `hopyard.Trial`.
            space: The hyperparameters: a `hopyard.space.Space`, or its written form as in an experiment file.
            metric: Name of the metric, or a mapping with `name`, `mode`, `target`; the value that the function returns has this name.
            mode: Whether larger ("max") or smaller ("min") values are better; None: the `mode` in the mapping `metric`.
            jobs: Maximum number of jobs; None: until the time is over, or the generator has no further configuration.
            max_iterations: The position at which a job is complete; None: when the function returns.
            max_time: Time that the search may run, in seconds or as "15m"; None: no limit.
            slots: Maximum number of slots, and so of jobs that train at a time; None: all that the cluster gives.
            policy: The policy; None: `default`.
            generator: The generator; None: that of the policy.
            folder: Folder of code to send with the function; None: see docs/python.md.
            interpreter: Path on the nodes of the Python for training; empty: the interpreter of the node agent.
            **fields: Further fields of an experiment file, such as `seed`, `resources`, `environment`, `snapshot`.

        Raises:
            InvalidInput: The function cannot be sent, or an argument is wrong.
            SpecError: The resulting specification is invalid. The error lists all mistakes; nothing was sent.
        """
        from hopyard.client.async_client import AsyncClient
        from hopyard.search import AsyncSearchHandle
        from hopyard.search.submission import search_submission

        named = {"policy": policy, "generator": generator}
        submission = await asyncio.to_thread(
            search_submission,
            function,
            space,
            metric=metric,
            mode=mode,
            jobs=jobs,
            max_iterations=max_iterations,
            max_time=max_time,
            slots=slots,
            folder=folder,
            fields={**fields, **{name: given for name, given in named.items() if given is not None}},
        )
        assert isinstance(self, AsyncClient)
        return AsyncSearchHandle(self, await self.create(submission, interpreter=interpreter), self.stop)
