"""Partitions of data sets on this node: answers the scheduler's inspections of them, and provides them to runs.

An inspection is a question of the scheduler about paths or URLs: it returns size, hash and number of examples of each.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from hopyard._net.server import Background
from hopyard._runtime.datasets.names import is_url
from hopyard._runtime.datasets.node_query import LOOK_AGAIN, PathAnswer, PathQuery, answer, asked
from hopyard._runtime.datasets.reader import examples_in
from hopyard.errors import DataLoss, HopyardError, InvalidInput, os_error_text
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard_nodeagent.data.digest_cache import Inspector
from hopyard_nodeagent.data.url_partitions import Remote

_log = logging.getLogger(__name__)


class NodePartitions:
    """Answers inspections (questions of the kind "inspect"), and provides the partitions that runs use as input.

    Args:
        inspector: Reads paths.
        remote: Downloads URLs.
        background: Starts and supervises the tasks, one for each question.
        say: Sends answers to the scheduler.
    """

    def __init__(
        self, inspector: Inspector, remote: Remote, background: Background, say: Callable[[wire.NodeAnswer], None]
    ) -> None:
        self._inspector = inspector
        self._remote = remote
        self._background = background
        self._say = say

    def ask(self, question: wire.NodeQuestion) -> None:
        """Start to answer a question. The answer is sent when all paths of the question have been read.

        For each path it contains size, hash and number of examples, or the error with which it could not be read.
        """
        self._background.start(self._answer(question), name="inspection")

    def stop(self) -> None:
        """Abort the reads of paths in progress; the answers contain an error for these paths."""
        self._inspector.stop()

    @asynccontextmanager
    async def ready(self, start: wire.StartRun) -> AsyncIterator[str]:
        """Return a context that yields the path of a run's input on this node; empty: the run has no input.

        Until the context ends, a copy downloaded from a URL is not deleted.

        Args:
            start: The start command of the run.

        Raises:
            HopyardError: The partition is missing, differs from the registered one, or cannot be downloaded.
        """
        if not start.input_name:  # A path given by the policy.
            yield start.input
        elif is_url(start.input):
            with self._remote.use(start.input_sha256):
                path, fresh = await self._remote.get(start.input, start.input_sha256, start.input_bytes)
                if fresh:
                    self._look_again()
                yield str(path)
        else:
            found = await self._look(PathQuery(start.input))
            if found.error or found.sha256 != start.input_sha256:
                self._look_again()
                what = found.error or (
                    f"{start.input}: found {found.size} bytes with the hash {found.sha256}; registered are "
                    f"{start.input_bytes} with {start.input_sha256}"
                )
                raise DataLoss(f"partition {start.input_name}: {what}")
            yield start.input

    def _look_again(self) -> None:
        self._say(wire.NodeAnswer(ticket=LOOK_AGAIN))

    async def _answer(self, question: wire.NodeQuestion) -> None:
        try:
            found = [await self._look(wanted) for wanted in asked(question.payload_json)]
        except ValueError as error:
            self._say(wire.NodeAnswer(ticket=question.ticket, error=f"the question is none: {error}"))
        else:
            self._say(wire.NodeAnswer(ticket=question.ticket, result_json=answer(found)))

    async def _look(self, wanted: PathQuery) -> PathAnswer:
        try:
            return await (self._by_url(wanted) if is_url(wanted.place) else self._by_path(wanted))
        except HopyardError as error:
            return PathAnswer(error=str(error))
        except OSError as error:
            return PathAnswer(error=os_error_text(error))

    async def _by_path(self, wanted: PathQuery) -> PathAnswer:
        found = await self._inspector.look(Path(wanted.place))
        return PathAnswer(found.size, found.sha256, found.examples)

    async def _by_url(self, wanted: PathQuery) -> PathAnswer:
        if wanted.fetch:
            path, _ = await self._remote.get(wanted.place, wanted.sha256, 0)
            return PathAnswer(path.stat().st_size, path.parent.name, examples_in(path))
        if not wanted.sha256:
            raise InvalidInput(f"{wanted.place}: needed is a hash to look for")
        known = self._remote.find(wanted.sha256)
        if known is None:
            return PathAnswer(error=f"{wanted.place}: it has not been read here")
        return PathAnswer(known.stat().st_size, wanted.sha256)
