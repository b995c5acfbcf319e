"""Making runs: code, snapshot and process brought together, and every way it can go wrong turned into an end."""

from __future__ import annotations

import asyncio
import logging
import shutil
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from hopyard._runtime.bundle import BundleError
from hopyard._runtime.criu import PROVIDER, CriuUnavailableError
from hopyard._runtime.runner.converters import data_budget
from hopyard._runtime.runner.failures import NOTHING_REPORTED
from hopyard._runtime.runner.watchdog import EXIT_GANG_BROKEN, EXIT_HUNG
from hopyard.errors import HopyardError
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import common_pb2, resource_manager_pb2
from hopyard_nodeagent.bundles import Bundles
from hopyard_nodeagent.data.partitions import NodePartitions
from hopyard_nodeagent.paths import Folders
from hopyard_nodeagent.runs import log_reader
from hopyard_nodeagent.runs.launch_spec import NodeUnable, Preparation, ProgramRefused, is_command, prepared
from hopyard_nodeagent.runs.machines import AgentMachine, Machines
from hopyard_nodeagent.runs.memory import MemoryGuard, used_bytes
from hopyard_nodeagent.runs.rendezvous import gang_of
from hopyard_nodeagent.runs.run import NodeRun
from hopyard_nodeagent.runs.training_process import Runner, RunnerDied, Sink
from hopyard_nodeagent.runs.watchdogs import Guard, LimitExceeded, SilenceGuard, guarded
from hopyard_nodeagent.snapshots.disk import Snapshots
from hopyard_nodeagent.snapshots.fetch import SnapshotMissing, announced, arrived, beside
from hopyard_nodeagent.snapshots.process_images import ProcessImages
from hopyard_nodeagent.snapshots.transfers import Fetched

_log = logging.getLogger(__name__)


class Executor:
    """Makes one run after the other on each machine."""

    def __init__(
        self,
        machines: Machines,
        snapshots: Snapshots,
        bundles: Bundles,
        folders: Folders,
        partitions: NodePartitions,
        images: ProcessImages,
    ) -> None:
        """Use the node's parts."""
        self._images = images
        self._machines = machines
        self._snapshots = snapshots
        self._bundles = bundles
        self._folders = folders
        self._partitions = partitions
        self.lease_seconds = 10.0
        self.join_seconds = 300.0
        """How long the ranks of a gang may take to come together."""
        self._deletions: set[asyncio.Future[None]] = set()

    async def execute(self, run: NodeRun, heard: Sink) -> resource_manager_pb2.RunEnded:
        """Make a run and return how it ended; `heard` gets what its process says meanwhile.

        A cancellation kills the process and leaves here.
        """
        log = self._folders.job_log(run.key.experiment, run.key.job, run.key.rank)
        log_began = log_reader.size(log)
        scratch = self._folders.scratch(run.key)
        try:
            machine = self._machines.get(run.start.machine)
            async with machine.lock:
                try:
                    return await self._execute(run, machine, heard)
                finally:
                    self._machines.released(machine)
                    self._delete(scratch)
        except RunnerDied as error:
            if error.exit_code == EXIT_HUNG and run.start.iteration_timeout:
                return run.failed(f"an iteration took longer than {run.start.iteration_timeout:g} s and was ended")
            if error.exit_code == EXIT_GANG_BROKEN:
                return run.lost("another rank of its gang was gone, and its code did not come to notice")
            message = _with_last_lines(str(error), log, log_began)
            return run.failed(message) if error.by_itself else run.lost(message)
        except _NothingReported as error:
            return run.failed(_with_last_lines(str(error), log, log_began))
        except SnapshotMissing as error:
            return run.lost(str(error), snapshot_missing=True)
        except (ProgramRefused, BundleError, LimitExceeded) as error:
            return run.failed(str(error), unable=isinstance(error, NodeUnable))
        except (HopyardError, CriuUnavailableError, OSError) as error:
            return run.lost(f"the run could not be prepared: {error}")
        except Exception as error:  # noqa: BLE001 (one run's misfortune must not end the others)
            _log.exception("%s: a bug in the agent", run.key)
            return run.lost(f"a bug in the node agent: {error!r}")

    def _delete(self, scratch: Path) -> None:
        """Nobody waits for it: neither who is told of the run's end nor who has the machine next."""
        deletion = asyncio.get_running_loop().run_in_executor(None, partial(shutil.rmtree, scratch, ignore_errors=True))
        self._deletions.add(deletion)
        deletion.add_done_callback(self._deletions.discard)

    async def _execute(self, run: NodeRun, machine: AgentMachine, heard: Sink) -> resource_manager_pb2.RunEnded:
        async with AsyncExitStack() as stack:
            snapshot_file, fetching = await self._coming(run, stack)
            start = _placed(run.start, await stack.enter_async_context(self._partitions.ready(run.start)))
            scratch, log = self._folders_of(run)
            host = await self._images.host(start, scratch, bool(machine.settings.gpus))
            code_folder = await self._code(start, scratch if host is None else Path(host.folder))
            preparation = prepared(run.key, start, code_folder, host)
            script = preparation.program.once
            if fetching is not None and (is_command(start.program) or start.world > 1):
                await arrived(run, fetching)
            runner = await (
                self._machines.script(machine, preparation, log) if script else self._runner(machine, preparation)
            )
            if script:  # It speaks when it has something to say; that it runs is known.
                heard(wire.AttachRequest(started=resource_manager_pb2.RunStarted(position=run.position)))
            if fetching is not None and (fetching.done() or not runner.awaits_snapshots):
                await arrived(run, fetching)
            message = wire.ApplicationStart(
                run=run.key.to_proto(),
                start=start,
                code_folder=str(code_folder),
                snapshot_file=snapshot_file,
                snapshot_verified=run.fetched.size > 0,
                snapshot_awaited=fetching is not None and not fetching.done(),
                snapshot_folder=str(self._snapshots.folder),
                scratch_folder=str(scratch),
                lease_seconds=self.lease_seconds,
                log_file=str(log),
                gang=await gang_of(run.key, start, self.join_seconds),
                working_folder=str(preparation.working_folder),
                process=host,
            )
            if preparation.program.parent:
                message.command.arguments.extend(preparation.command)
                message.environment.update(preparation.variables)
            ended = await _made(run, runner, message, heard, fetching)
            if ended.HasField("snapshot"):
                ended.snapshot.CopyFrom(run.located(ended.snapshot))
        if ended.reason == common_pb2.RUN_END_REASON_LOST and snapshot_file:
            await self._snapshots.discard_if_corrupt(run.start.snapshot.sha256)
        if script and ended.finished:
            if not (run.reported or snapshot_file):
                raise _NothingReported(NOTHING_REPORTED)
            ended.position = run.position
        return ended

    async def _coming(self, run: NodeRun, stack: AsyncExitStack) -> tuple[str, asyncio.Task[Fetched] | None]:
        """Where a run's snapshot is going to be, and its way there, which ends with `stack`; empty and None: it has no snapshot."""
        if not run.start.HasField("snapshot"):
            return "", None
        sha256 = run.start.snapshot.sha256
        path = stack.enter_context(self._snapshots.use(sha256))
        fetch = self._snapshots.fetch(sha256, run.start.snapshot_peers, run.key.experiment)
        return str(path), await stack.enter_async_context(beside(fetch))

    def _folders_of(self, run: NodeRun) -> tuple[Path, Path]:
        """A run's own folder, and its log."""
        scratch = self._folders.scratch(run.key)
        scratch.mkdir()
        log = self._folders.job_log(run.key.experiment, run.key.job, run.key.rank)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
        return scratch, log

    async def _code(self, start: resource_manager_pb2.StartRun, own: Path) -> Path:
        """The experiment's code: shared by trainers, which stay; a copy for a command, which writes where it runs.

        Processes that are restored bring their copy with them.
        """
        program = start.program
        if is_command(program):
            copy = own / "code"
            if start.snapshot.provider != PROVIDER:
                await asyncio.to_thread(own.mkdir, exist_ok=True)
                await self._bundles.copy(program.bundle, copy)
            return copy
        return await self._bundles.folder(program.bundle) if program.bundle else self._folders.data

    async def _runner(self, machine: AgentMachine, preparation: Preparation) -> Runner:
        """A runner for a program. One that still holds what an earlier run left is no start for a run with a limit."""
        program, definition = preparation.program, preparation.definition
        runner = await self._machines.runner(machine, program, definition)
        limit = definition.memory_bytes
        # The data that it keeps for this run are wanted.
        most = (limit + min(data_budget(definition), limit)) // 2
        if limit and runner.used and await asyncio.to_thread(used_bytes, runner.pid, most) > most:
            await runner.leave()
            runner = await self._machines.runner(machine, program, definition)
        return runner


class _NothingReported(Exception):
    """A script has ended without a word."""


def _with_last_lines(message: str, log: Path, since: int) -> str:
    said = log_reader.last_lines(log, since)
    return f"{message}; its last lines:\n{said}" if said else message


def _placed(start: resource_manager_pb2.StartRun, place: str) -> resource_manager_pb2.StartRun:
    """A start with its input where it is on this node."""
    if place == start.input:
        return start
    placed = resource_manager_pb2.StartRun()
    placed.CopyFrom(start)
    placed.input = place
    return placed


async def _made(
    run: NodeRun,
    runner: Runner,
    message: wire.ApplicationStart,
    heard: Sink,
    fetching: asyncio.Task[Fetched] | None,
) -> resource_manager_pb2.RunEnded:
    """Make a run, whose snapshot may still be on its way; if it does not come that is how the run ends, whatever its process says."""
    making = guarded(run.make(runner, message, heard), _guards(run, runner), runner.kill, RunnerDied)
    if fetching is None or not message.snapshot_awaited:
        return await making
    async with beside(announced(run, fetching)) as announcing:
        ended = await making
        if announcing.done():
            announcing.result()
        return ended


def _guards(run: NodeRun, runner: Runner) -> list[Guard]:
    guards: list[Guard] = []
    if run.start.program.memory_bytes:
        guards.append(MemoryGuard(runner.pid, run.start.program.memory_bytes))
    if run.start.iteration_timeout:
        # Before a script attaches, nobody else looks whether it hangs.
        words = ("and was ended",) if runner.program.once else ()
        guards.append(SilenceGuard(run.start.iteration_timeout, lambda: runner.heard, lambda: run.training, *words))
    return guards
