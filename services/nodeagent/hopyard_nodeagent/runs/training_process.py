"""Training processes. Each slot has one, the runner, which is reused for runs of the same program.

A process *attaches*: it connects to the agent by the RPC Attach, whose stream carries all messages between the two. The process of a
script executes one run only, and attaches when it makes its first report.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from hopyard._common.private_files import inherited_umask, open_private
from hopyard._runtime.criu import procfs
from hopyard._runtime.criu.process_group import MOUNT
from hopyard._runtime.processes.process_family import MARK, ProcessFamily
from hopyard._runtime.runner.watchdog import CRASHES, EXIT_AGENT_GONE
from hopyard.errors import Conflict, InvalidInput
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import common_pb2, resource_manager_pb2
from hopyard_nodeagent.runs.control_group import ControlGroup
from hopyard_nodeagent.runs.launch_spec import LaunchSpec
from hopyard_nodeagent.runs.logs import log_reader
from hopyard_nodeagent.runs.orphan_processes import END_SECONDS

_log = logging.getLogger(__name__)

_LAST_WORDS_SECONDS: Final = 10.0
"""Time limit in seconds for the last messages of a process that has exited to be read from its connection."""
_EXIT_SECONDS: Final = 2.0
"""Time limit in seconds for a process that closed its connection to exit."""
_LEAVE_SECONDS: Final = 2.0
_TIDY_SECONDS: Final = 10.0
"""Time limit in seconds for a script to exit after it has reported the end of its run."""
_HEARTBEAT_SECONDS: Final = 1.0

Sink = Callable[[wire.AttachRequest], None]


class RunnerDied(Exception):
    """The process of a run has ended or could not be started; the message says how.

    `exit_code` and `by_itself` are attributes, too.

    Args:
        message: How the process ended or why it could not be started, for people.
        exit_code: The exit code; negative: killed by the signal of that number; None: unknown.
        by_itself: True if the program exited or crashed during a run; False if it was killed or had no run.
    """

    def __init__(self, message: str, exit_code: int | None, *, by_itself: bool = False) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.by_itself = by_itself


class Runner:
    """One training process and its attachment, which is the connection to this agent.

    It executes one run at a time: the caller starts the next one after the end of the run before.

    Args:
        process: The operating system's process, which was just started.
        token_id: Id of the token with which the process authenticates.
        program: What the process executes.
        log: The file to which the process writes between runs.
        over: Called with the process id when the process and its children have ended; None: nothing is called.
        family: The process with all its children; None: those in its process session.
    """

    def __init__(
        self,
        process: Process,
        token_id: str,
        program: LaunchSpec,
        log: Path,
        over: Callable[[int], None] | None = None,
        family: ProcessFamily | None = None,
    ) -> None:
        self.program = program
        self.pid = process.pid
        self.token_id: Final = token_id
        self._process = process
        self._log = log
        self._over = over
        self._family = family or ProcessFamily(process.pid)
        self._log_began = log_reader.size(log)
        self._attached = asyncio.Event()
        self._detached = asyncio.Event()
        self._responses: asyncio.Queue[wire.AttachResponse] = asyncio.Queue()
        self._leaving = False
        self._folder = ""
        """Name of the run's folder that child processes see at MOUNT, to find those that outlive the process; empty: none."""
        self.awaits_snapshots = False
        """Whether a run may start in the process before the run's snapshot is on this node; known when it has attached."""
        self.heard = time.monotonic()
        """Time of the last message of the process, heartbeats included, in seconds of `time.monotonic`."""
        self._sink: Sink | None = None
        self._start: wire.ApplicationStart | None = None
        self._ended: asyncio.Future[resource_manager_pb2.RunEnded] | None = None
        self._exit = asyncio.create_task(self._wait_for_exit(), name=f"runner-{process.pid}")

    @property
    def usable(self) -> bool:
        """Whether the process can execute another run: it is alive, its connection has not ended, and it was not told to exit."""
        return not (self._leaving or self._exit.done() or self._detached.is_set())

    @property
    def used(self) -> bool:
        """Whether the process was ever given a run."""
        return self._ended is not None

    @property
    def start(self) -> wire.ApplicationStart:
        """The start message of the run that the process executes.

        Raises:
            Conflict: The process executes no run.
        """
        if self._start is None:
            raise Conflict(f"process {self.pid} has no run")
        return self._start

    async def wait_attached(self, seconds: float) -> None:
        """Wait until the process has attached.

        Raises:
            RunnerDied: The process ended before it attached, or did not attach within `seconds` and was killed.
        """
        attached = asyncio.create_task(self._attached.wait())
        try:
            await asyncio.wait({attached, self._exit}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            attached.cancel()
        if self._attached.is_set():
            return
        if self.usable:
            await self.kill()
            raise RunnerDied(f"the runner did not attach within {seconds:g} s{self._said()}", None)
        raise self._died(f"before it attached{self._said()}")

    async def attach(
        self,
        requests: AsyncIterator[wire.AttachRequest],
        respond: Callable[[wire.AttachResponse], Awaitable[None]],
    ) -> None:
        """Exchange messages with the process over its connection, until the connection ends.

        Args:
            requests: The messages of the process.
            respond: Sends a message to the process.

        Raises:
            Conflict: The process is attached already.
            InvalidInput: The first message of the process is not `hello`.
        """
        if self._attached.is_set():
            raise Conflict(f"process {self.pid} is attached already")
        async for request in requests:
            if request.WhichOneof("message") != "hello":
                raise InvalidInput(f"attach: found {request.WhichOneof('message')} first, allowed is hello")
            self.awaits_snapshots = request.hello.awaits_snapshots
            break
        self._attached.set()
        tasks = {
            asyncio.create_task(self._read(requests)),
            asyncio.create_task(self._write(respond)),
            asyncio.create_task(self._beat()),
        }
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._detached.set()

    def execute(self, start: wire.ApplicationStart, sink: Sink) -> Coroutine[None, None, resource_manager_pb2.RunEnded]:
        """Send a run to the process at once. The returned coroutine waits for the end of the run and returns how it ended.

        Call it only while the process executes no run, which is not checked.

        If a script exits with code 0, the returned end has the reason UNTIL and `finished` set. The process of a script has ended when
        the coroutine returns. If the coroutine is cancelled, the process is killed.

        Args:
            start: The message that starts the run.
            sink: Called with each message of the process except heartbeats and the end of the run.

        Raises:
            RunnerDied: The process ended before it reported the end of the run, or lost its connection and was killed.
        """
        self._ended = asyncio.get_running_loop().create_future()
        self._sink, self._start = sink, start
        self._folder = Path(start.process.folder).name
        self.tell(wire.AttachResponse(start=start))
        return self._execution(self._ended)

    async def _execution(self, ended: asyncio.Future[resource_manager_pb2.RunEnded]) -> resource_manager_pb2.RunEnded:
        detached = asyncio.create_task(self._detached.wait())
        try:
            if self.program.once:
                await self._wait_until_over(ended, detached)
            else:
                await self._wait_until_told(ended, detached)
            if ended.done():
                return ended.result()
            if await self._was_alive():
                raise RunnerDied("the runner lost its attachment and was killed", None)
            if self.program.once and self._process.returncode == 0:
                return resource_manager_pb2.RunEnded(reason=common_pb2.RUN_END_REASON_UNTIL, finished=True)
            raise self._died("in the middle of a run", running=True)
        finally:
            detached.cancel()
            self._sink = self._start = None
            if not ended.done():
                ended.cancel()
                await self.kill()
            elif self.program.once:
                await self.kill()

    async def _wait_until_told(
        self, ended: asyncio.Future[resource_manager_pb2.RunEnded], detached: asyncio.Task[bool]
    ) -> None:
        """Wait until the process has reported the end of its run, or has disconnected or exited without this report.

        Args:
            ended: Completed by the report of the end.
            detached: Completed when the connection of the process has ended.
        """
        ends: set[asyncio.Future[Any]] = {ended, detached, self._exit}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            # The last messages of a process may be read after its exit is noticed, or before.
            await asyncio.wait({detached}, timeout=_LAST_WORDS_SECONDS)
        if not ended.done():
            await asyncio.wait({self._exit}, timeout=_EXIT_SECONDS)

    async def _was_alive(self) -> bool:
        """Kill the process if it is alive. Return True if this call killed it, False if it had exited before.

        Child processes that outlive the process are killed, too, but do not change the result. The exit code of the process decides,
        because the agent may notice an exit late: it is -SIGKILL only if the process was alive.
        """
        if self._process.returncode is not None:
            return False
        self._kill_group()
        return await self._process.wait() == -signal.SIGKILL

    async def _wait_until_over(
        self, ended: asyncio.Future[resource_manager_pb2.RunEnded], detached: asyncio.Task[bool]
    ) -> None:
        """Wait until a script has exited, whether it is attached or not.

        After the script has reported the end of its run, it is told to exit; return after `_TIDY_SECONDS` even if it has not: the
        caller kills it. If an attached script exits without this report, wait at most `_LAST_WORDS_SECONDS` for its last messages.

        Args:
            ended: Completed by the report of the end.
            detached: Completed when the connection of the process has ended.
        """
        ends: set[asyncio.Future[Any]] = {ended, self._exit}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            self.tell(wire.AttachResponse(exit=wire.ApplicationExit(reason="its run is over")))
            await asyncio.wait({self._exit}, timeout=_TIDY_SECONDS)
        elif self._attached.is_set():
            await asyncio.wait({detached}, timeout=_LAST_WORDS_SECONDS)

    def tell(self, response: wire.AttachResponse) -> None:
        """Queue a message to the process. It is sent when the process is attached."""
        self._responses.put_nowait(response)

    async def leave(self) -> None:
        """Tell an idle process to exit, and wait until it has ended. Kill it if it takes longer than `_LEAVE_SECONDS`."""
        if self.usable:
            self._leaving = True
            self.tell(wire.AttachResponse(exit=wire.ApplicationExit(reason="no further run comes")))
            await asyncio.wait({self._exit}, timeout=_LEAVE_SECONDS)
        await self.kill()

    async def kill(self) -> None:
        """Kill the process and its child processes; return when all of them have ended."""
        if not self._exit.done():
            self._kill_group()
        await asyncio.shield(self._exit)

    async def _read(self, requests: AsyncIterator[wire.AttachRequest]) -> None:
        async for request in requests:
            self.heard = time.monotonic()
            if request.HasField("ended"):
                if self._ended is not None and not self._ended.done():
                    self._ended.set_result(request.ended)
            elif not request.HasField("heartbeat") and self._sink is not None:
                self._sink(request)

    async def _write(self, respond: Callable[[wire.AttachResponse], Awaitable[None]]) -> None:
        while True:
            await respond(await self._responses.get())

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            if self._responses.empty():
                self.tell(wire.AttachResponse(heartbeat=wire.AttachHeartbeat()))

    async def _wait_for_exit(self) -> None:
        await self._process.wait()
        # Orphans of the process, such as data loaders. The slot is free when they have ended.
        self._kill_group()
        await asyncio.to_thread(self._family.end, END_SECONDS)
        if self._folder:
            await asyncio.to_thread(procfs.end, partial(procfs.mounted, MOUNT, self._folder), END_SECONDS)
        if self._over is not None:
            self._over(self.pid)

    async def end_orphans(self) -> None:
        """Kill the processes that the last run has left and whose parents have ended; return when they have ended."""
        await asyncio.to_thread(self._family.end_orphans, END_SECONDS)

    def _kill_group(self) -> None:
        self._family.kill()
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def _died(self, when: str, *, running: bool = False) -> RunnerDied:
        code = self._process.returncode
        if code is None or code >= 0:
            by_itself = running and code != EXIT_AGENT_GONE
            said = f"the program ended with exit code {code}" if self.program.once else ""
            said = said or f"the training process ended with exit code {code} {when}"
            return RunnerDied(said, code, by_itself=by_itself)
        # The agent passes a message for each process that it kills; a SIGKILL without one comes from the kernel, if memory is short.
        why = " (out of memory?)" if -code == signal.SIGKILL else ""
        message = f"the training process was killed by signal {_signal_name(-code)}{why} {when}"
        return RunnerDied(message, code, by_itself=running and -code in CRASHES)

    def _said(self) -> str:
        text = log_reader.last_lines(self._log, self._log_began)
        return f"; it said:\n{text}" if text else ""


async def spawn(
    program: LaunchSpec,
    *,
    token_id: str,
    environment: Mapping[str, str],
    log: Path,
    folder: Path,
    over: Callable[[int], None] | None = None,
    group: Callable[[int], ControlGroup | None] = lambda pid: None,
) -> Runner:
    """Start a training process in a new process session, without input.

    Args:
        program: What the process executes.
        token_id: Id of the token with which the process authenticates.
        environment: The environment variables of the process.
        log: File to which its output is appended.
        folder: Its working directory.
        over: Called with the process id when the process and its children have ended; None: nothing is called.
        group: Moves the process with an id into a control group, and returns the group; None: there is none.

    Raises:
        RunnerDied: The program of the command line cannot be started.
    """
    handle = open_private(log, os.O_WRONLY | os.O_APPEND)
    try:
        process = await asyncio.create_subprocess_exec(
            *program.arguments,
            stdin=DEVNULL,
            stdout=handle,
            stderr=handle,
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
            umask=inherited_umask(),
        )
    except OSError as error:
        raise RunnerDied(f"{program.arguments[0]} cannot be started in {folder}: {error.strerror}", None) from error
    finally:
        os.close(handle)
    owner = f" of experiment {program.experiment}" if program.experiment else ", which waits for its first run"
    _log.info("started runner %d%s", process.pid, owner)
    control = group(process.pid)
    family = ProcessFamily(process.pid, environment.get(MARK, ""), control)

    def ended(pid: int) -> None:
        if control is not None:
            control.delete()
        if over is not None:
            over(pid)

    return Runner(process, token_id, program, log, ended, family)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # Real-time signals have no names.
        return str(number)
