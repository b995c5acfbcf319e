"""Answers the scheduler's questions about the logs of experiments on this node."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from typing import Final

from hopyard._net.server import Background
from hopyard._runtime.job_log import LogQuery, log_answer
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard_nodeagent.paths import AgentFolders
from hopyard_nodeagent.runs.logs.cut import kept_bytes

_MOST_ERROR: Final = 300


class LogAnswers:
    """Measures and deletes the logs of experiments.

    Args:
        folders: The data folder of the agent.
        background: Starts and supervises the tasks; each answers one question of the scheduler.
        say: Sends an answer to the scheduler.
    """

    def __init__(self, folders: AgentFolders, background: Background, say: Callable[[wire.NodeAnswer], None]) -> None:
        self._folders = folders
        self._background = background
        self._say = say

    def ask(self, question: wire.NodeQuestion) -> None:
        """Start to answer a question, whose payload is a `LogQuery`, and return at once.

        The answer has the ticket of the question, and the sizes of logs or an error.
        """
        self._background.start(self._answer(question), name="logs")

    async def _answer(self, question: wire.NodeQuestion) -> None:
        try:
            wanted = LogQuery.from_json(question.payload_json)
            sizes = await asyncio.to_thread(self.carry_out, wanted)
        except (ValueError, OSError) as error:
            self._say(wire.NodeAnswer(ticket=question.ticket, error=f"{error}"[:_MOST_ERROR]))
        else:
            self._say(wire.NodeAnswer(ticket=question.ticket, result_json=log_answer(sizes)))

    def carry_out(self, wanted: LogQuery) -> dict[str, tuple[int, int]]:
        """Measure the logs of all experiments of a query, and then delete those of the experiments in `wanted.delete`.

        Args:
            wanted: The experiments whose logs are only measured, and those whose logs are also deleted.

        Returns:
            (number of logs, their bytes before the deletion) by experiment. Experiments without logs here are left out.

        Raises:
            OSError: A folder cannot be read or deleted.
        """
        found = {}
        for name in (*wanted.measure, *wanted.delete):
            folder = self._folders.job_log(name, "").parent
            sizes = [kept_bytes(log) for log in folder.glob("*.log")]
            if sizes:
                found[name] = (len(sizes), sum(sizes))
        for name in wanted.delete:
            folder = self._folders.job_log(name, "").parent
            if folder.is_dir():
                shutil.rmtree(folder)
        return found
