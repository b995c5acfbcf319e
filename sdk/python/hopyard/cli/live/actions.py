"""Performs the commands that keys give in the live view: pauses and resumes jobs and the experiment, and follows logs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Any

from hopyard._common import formatting
from hopyard.cli.live.controls import Action, Command, Controls
from hopyard.client.async_client import AsyncClient
from hopyard.client.types import Experiment
from hopyard.errors import HopyardError


class LiveActions:
    """Performs commands of the live view with a client, in the background. Errors of the cluster become notices of the view.

    Args:
        client: The client of the cluster.
        experiment: The experiment that is shown.
        controls: Shows the notices and has the log that is open.
        leave: Called for the command LEAVE.
    """

    def __init__(
        self, client: AsyncClient, experiment: Experiment, controls: Controls, leave: Callable[[], object]
    ) -> None:
        self._client = client
        self._experiment = experiment
        self._controls = controls
        self._leave = leave
        self._tasks = set[asyncio.Task[None]]()
        self._log: asyncio.Task[None] | None = None

    def perform(self, command: Command) -> None:
        """Begin to perform a command, without waiting for its effect."""
        client, experiment, job = self._client, self._experiment, command.job
        match command.action:
            case Action.FOLLOW_LOG:
                self._end_log()
                self._log = self._start(self._follow(job))
            case Action.CLOSE_LOG:
                self._end_log()
            case Action.PAUSE_JOB:
                self._start(self._tell(client.pause_job(experiment, job), f"job {job} is paused; p resumes it"))
            case Action.RESUME_JOB:
                self._start(self._tell(client.resume_job(experiment, job), f"job {job} may start again"))
            case Action.PAUSE:
                self._start(self._tell(client.pause(experiment), "the experiment is paused; P resumes it"))
            case Action.RESUME:
                self._start(self._tell(client.resume(experiment), "the experiment continues"))
            case Action.LEAVE:
                self._leave()

    async def close(self) -> None:
        """Cancel what is not finished."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="live action")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _tell(self, work: Coroutine[Any, Any, object], done: str) -> None:
        try:
            await work
            self._controls.notice = done
        except HopyardError as error:
            self._controls.notice = formatting.first_line(formatting.printable(str(error)))

    async def _follow(self, job: str) -> None:
        log = self._controls.log
        if log is None:
            return
        try:
            async with aclosing(self._client.logs(self._experiment, job, follow=True)) as chunks:
                log.message = "no output yet"
                async for chunk in chunks:
                    log.add(chunk)
            log.message = "end of the log" if log.lines() else "the job printed nothing"
        except HopyardError as error:
            log.message = formatting.first_line(formatting.printable(str(error)))

    def _end_log(self) -> None:
        if self._log is not None:
            self._log.cancel()
            self._log = None
