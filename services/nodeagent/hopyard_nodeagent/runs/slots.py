"""The slots of the node, each with its runner.

A *runner* is a training process that executes runs. After a run, the process stays alive ("warm") for the next run of the same program.
A *spare* runner was started without a program.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from hopyard._net.auth import CallerKind, Principal, TokenAuthenticator, new_token
from hopyard.errors import InvalidInput, PermissionDenied
from hopyard.v1 import resource_manager_pb2
from hopyard_nodeagent.paths import AgentFolders
from hopyard_nodeagent.runs.adopted_processes import AdoptedProcesses
from hopyard_nodeagent.runs.control_group import ControlGroups
from hopyard_nodeagent.runs.launch_spec import (
    LaunchSpec,
    Preparation,
    ProgramRefused,
    agent_variables,
    environment_of,
    mark_of_token,
    spare,
)
from hopyard_nodeagent.runs.orphan_processes import OrphanRegistry
from hopyard_nodeagent.runs.training_process import Runner, RunnerDied, spawn
from hopyard_nodeagent.settings import SlotSettings

_log = logging.getLogger(__name__)

_NO_PROGRAM: Final = frozenset({errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR})
"""Error numbers of a failed start that mean that the program does not exist or is not executable."""


class AgentSlot:
    """One slot with its CPUs and GPUs, and the runner (training process) on it.

    A new slot has no runner.

    Args:
        settings: Id, CPUs and GPUs of the slot.
    """

    def __init__(self, settings: SlotSettings) -> None:
        self.settings = settings
        self.lock = asyncio.Lock()
        """Held while a run uses the slot, or its runner is started or ended."""
        self.runner: Runner | None = None
        self.environment: Mapping[str, str] = {}
        """The environment of the runner, without the variables that name the agent's address and token."""
        self.idle_since = 0.0


class Slots:
    """All slots of the node; starts and ends the runners (training processes) on them.

    The constructor ends processes that an earlier agent left behind. New slots have no runners.

    Args:
        settings: The settings of each slot.
        folders: The data folder of the agent.
        attach_seconds: Maximum time in seconds for a new runner to attach (connect to the agent).
        passed: Patterns of names of environment variables that all processes get from the agent, in addition to the usual ones.
        groups: Creates the control groups of the processes; None: they have none.
        clock: Returns monotonic seconds, to measure idle times.
    """

    def __init__(
        self,
        settings: Sequence[SlotSettings],
        folders: AgentFolders,
        *,
        attach_seconds: float,
        passed: Sequence[str] = (),
        groups: ControlGroups | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slots = {slot.id: AgentSlot(slot) for slot in settings}
        self._folders = folders
        self._attach_seconds = attach_seconds
        self._passed = tuple(passed)
        self._clock = clock
        self.tokens: Final = TokenAuthenticator()
        """The tokens of the live training processes."""
        self._starting: dict[str, asyncio.Future[Runner]] = {}
        self.processes: Final = OrphanRegistry(folders.processes)
        """The record of the agent's live processes."""
        self.processes.end_all()
        self.adopted: Final = AdoptedProcesses(self.processes.leaders)
        """The processes whose parents have ended, if the agent is a subreaper."""
        self._groups = groups or ControlGroups("", None)
        self.application_address = ""

    def get(self, slot: str) -> AgentSlot:
        """Return the slot with this id.

        Raises:
            InvalidInput: The node has no such slot; the message lists the existing ones.
        """
        if slot not in self._slots:
            raise InvalidInput(f"slot {slot!r} is not on this node; it has {', '.join(self._slots) or 'none'}")
        return self._slots[slot]

    def settings(self) -> list[SlotSettings]:
        """Return the settings of all slots, in order."""
        return [slot.settings for slot in self._slots.values()]

    async def runner_of(self, principal: Principal) -> Runner:
        """Return the training process that is the caller.

        Args:
            principal: The caller.

        Raises:
            PermissionDenied: The process has ended.
        """
        starting = self._starting.get(principal.id)
        if starting is not None:
            return await starting
        for slot in self._slots.values():
            if slot.runner is not None and slot.runner.token_id == principal.id:
                return slot.runner
        raise PermissionDenied("the training process with this token has ended")

    async def runner(self, slot: AgentSlot, program: LaunchSpec, definition: resource_manager_pb2.RunProgram) -> Runner:
        """Return a training process (runner) for a program, attached to the agent: the slot's idle one if it suits, else a new one.

        The idle one suits if it executes the same program, or is a spare one with the command line and environment of the program.

        The caller must hold the slot's lock.

        Args:
            slot: The slot.
            program: What the runner shall execute.
            definition: The program message, from which the environment of the process is derived.

        Raises:
            RunnerDied: The runner could not be started, or did not attach in time.
            ProgramRefused: The environment of the program is not allowed.
        """
        present = slot.runner
        if present is not None and present.usable and present.program == program:
            await present.wait_attached(self._attach_seconds)
            return present
        environment = environment_of(definition, slot.settings, os.environ, self._passed)
        if present is not None and present.usable and _fits(present, slot.environment, program, environment):
            present.program = program
            await present.wait_attached(self._attach_seconds)
            return present
        log = self._folders.runner_log(slot.settings.id)
        runner = await self._start(slot, program, environment, log, self._folders.data)
        try:
            await runner.wait_attached(self._attach_seconds)
        except RunnerDied:
            slot.runner = None
            raise
        return runner

    async def prepare(self, most: int) -> None:
        """Start spare runners, which are training processes without a program, on those of the first `most` slots that have no runner.

        The first run on such a slot need not wait for the start of a process, unless its program needs another environment.

        Args:
            most: Number of slots to consider, >= 0.

        Raises:
            RunnerDied: A runner could not be started.
        """
        program, definition = spare()
        for slot in list(self._slots.values())[:most]:
            if slot.runner is None and not slot.lock.locked():
                async with slot.lock:
                    environment = environment_of(definition, slot.settings, os.environ, self._passed)
                    log = self._folders.runner_log(slot.settings.id)
                    await self._start(slot, program, environment, log, self._folders.data)
                    self.released(slot)

    async def script(self, slot: AgentSlot, preparation: Preparation, log: Path) -> Runner:
        """Start the process of a script. It connects (attaches) to the agent only when it makes its first report.

        The caller must hold the slot's lock.

        Args:
            slot: The slot.
            preparation: How the script is executed.
            log: File to which the output of the script is appended.

        Raises:
            RunnerDied: The process could not be started; another attempt may succeed.
            ProgramRefused: The program does not exist, or its environment is not allowed.
        """
        environment = environment_of(preparation.definition, slot.settings, os.environ, self._passed)
        environment |= preparation.variables
        try:
            return await self._start(slot, preparation.program, environment, log, preparation.working_folder)
        except RunnerDied as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in _NO_PROGRAM:
                raise ProgramRefused(f"command: {error}") from error
            raise

    async def _start(
        self, slot: AgentSlot, program: LaunchSpec, environment: Mapping[str, str], log: Path, folder: Path
    ) -> Runner:
        """Start a process on a slot, after ending the slot's current runner. It becomes the slot's runner.

        Args:
            slot: The slot.
            program: What the process executes.
            environment: The environment of the process, without the variables that name the agent's address and token.
            log: File to which the output of the process is appended.
            folder: The working directory of the process.

        Raises:
            RunnerDied: The process could not be started.
        """
        present = slot.runner
        if present is not None:
            # A process that has executed no run has nothing to clean up, so it can be killed.
            await (present.leave() if present.used else present.kill())
            slot.runner = None
        token = new_token(CallerKind.RUN)
        started = asyncio.get_running_loop().create_future()
        self._starting[token.id] = started
        self.tokens.add(token)
        runner: Runner | None = None

        def over(pid: int) -> None:
            self.tokens.remove(token)
            self.processes.forget(pid)

        try:
            variables = agent_variables(self.application_address, token.text)
            mark = mark_of_token(token.text)
            with self.processes.starting(mark):
                slot.runner = runner = await spawn(
                    program,
                    token_id=token.id,
                    environment={**environment, **variables},
                    log=log,
                    folder=folder,
                    over=over,
                    group=self._groups.add,
                )
                self.processes.note(runner.pid, mark)
            started.set_result(runner)
        finally:
            del self._starting[token.id]
            started.cancel()
            if runner is None:
                self.tokens.remove(token)
        slot.environment = environment
        return runner

    async def end_orphans(self, slot: AgentSlot) -> None:
        """End the processes that a run has left on its slot and whose parents have ended; the caller holds the slot's lock.

        An error of the search for them is logged. The processes then end later, with the runner.
        """
        try:
            if slot.runner is not None and (self._groups.available or self.adopted.any()):
                await slot.runner.end_orphans()
        except OSError as error:  # Such as too many open files.
            _log.error("slot %s: the processes that a run may have left were not ended: %s", slot.settings.id, error)

    def released(self, slot: AgentSlot) -> None:
        """Record that the slot is idle from now on: its run has ended."""
        slot.idle_since = self._clock()

    async def end_idle(self, idle_seconds: float) -> None:
        """End training processes that were idle for `idle_seconds` or longer, and drop those that have ended by themselves."""
        for slot in self._slots.values():
            idle = self._clock() - slot.idle_since
            runner = slot.runner
            if runner is not None and not slot.lock.locked() and (idle >= idle_seconds or not runner.usable):
                async with slot.lock:
                    await runner.leave()
                    slot.runner = None

    async def kill_all(self) -> None:
        """Kill the training processes of all slots, and wait until they have ended."""
        runners = [slot.runner for slot in self._slots.values() if slot.runner is not None]
        await asyncio.gather(*(runner.kill() for runner in runners))


def _fits(runner: Runner, has: Mapping[str, str], program: LaunchSpec, wants: Mapping[str, str]) -> bool:
    """Return whether `runner` is a spare one that was started with the command line and environment that a program needs.

    A spare runner is a training process that was started before there was a program for it.

    Args:
        runner: The runner.
        has: The environment of the runner.
        program: What the runner shall execute.
        wants: The environment that the program needs.
    """
    return not runner.program.experiment and runner.program.arguments == program.arguments and has == wants
