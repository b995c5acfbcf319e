"""Executes runs: provides code, input, snapshot and process, and converts every failure into an end of the run.

A *runner* is a training process that executes runs. A *command* is a user's program that is given as a command line instead of a
trainer class.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from hopyard._common.private_files import FOLDER_MODE, open_private
from hopyard._net.rpc.values import run_key_to_proto
from hopyard._runtime.bundle import BundleError
from hopyard._runtime.criu import PROVIDER, CriuUnavailableError
from hopyard._runtime.job_log import LOG_POSITION
from hopyard._runtime.runner.converters import data_budget
from hopyard._runtime.runner.failures import NOTHING_REPORTED
from hopyard._runtime.runner.watchdog import EXIT_GANG_BROKEN, EXIT_HUNG
from hopyard.errors import HopyardError
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import common_pb2, resource_manager_pb2
from hopyard_nodeagent.bundles import Bundles, CodeMissing
from hopyard_nodeagent.cluster_access import TicketSource
from hopyard_nodeagent.data.partitions import NodePartitions
from hopyard_nodeagent.paths import AgentFolders
from hopyard_nodeagent.runs.launch_spec import NodeUnable, Preparation, ProgramRefused, is_command, prepared
from hopyard_nodeagent.runs.logs import log_reader
from hopyard_nodeagent.runs.logs.limits import LogLimiter
from hopyard_nodeagent.runs.memory import MemoryGuard, used_bytes
from hopyard_nodeagent.runs.rendezvous import gang_of
from hopyard_nodeagent.runs.run import NodeRun
from hopyard_nodeagent.runs.slots import AgentSlot, Slots
from hopyard_nodeagent.runs.training_process import Runner, RunnerDied, Sink
from hopyard_nodeagent.runs.watchdogs import Guard, LimitExceeded, SilenceGuard, guarded
from hopyard_nodeagent.snapshots.disk import Snapshots
from hopyard_nodeagent.snapshots.fetch import SnapshotMissing, announced, arrived, beside
from hopyard_nodeagent.snapshots.process_images import ProcessImages
from hopyard_nodeagent.snapshots.transfers import Fetched

_log = logging.getLogger(__name__)


class Executor:
    """Executes the runs of the node, one at a time on each slot.

    Args:
        slots: The slots on which runs execute.
        snapshots: The snapshots on this node, from which runs start and in which they save.
        bundles: The code bundles on this node.
        folders: The data folder of the agent, for logs and temporary files.
        partitions: Provides the partitions of data sets that runs use as input.
        images: Decides which runs use CRIU for snapshots.
        log_limiter: Keeps the logs of jobs within their limits.
        tickets: Requests tickets for the agents of other ranks of gangs.

    Attributes:
        lease_seconds: Time in seconds without a message from the agent after which the process of a run considers the agent as lost.
        join_seconds: Maximum time in seconds for the ranks of a gang to connect to each other.
    """

    def __init__(
        self,
        slots: Slots,
        snapshots: Snapshots,
        bundles: Bundles,
        folders: AgentFolders,
        partitions: NodePartitions,
        images: ProcessImages,
        log_limiter: LogLimiter,
        tickets: TicketSource,
    ) -> None:
        self._log_limiter = log_limiter
        self._tickets = tickets
        self._images = images
        self._slots = slots
        self._snapshots = snapshots
        self._bundles = bundles
        self._folders = folders
        self._partitions = partitions
        self.lease_seconds = 10.0
        self.join_seconds = 300.0
        """Maximum time in seconds for the ranks of a gang to connect to each other."""
        self._deletions: set[asyncio.Future[None]] = set()

    async def execute(self, run: NodeRun, heard: Sink) -> resource_manager_pb2.RunEnded:
        """Execute a run, and return how it ended. Failures are returned as an end, too.

        If the caller is cancelled, the process is killed, and CancelledError is raised.

        Args:
            run: The run.
            heard: Called with each message of the run's process.
        """
        log = self._folders.job_log(run.key.stream, run.key.job, run.key.rank)
        log_began = log_reader.size(log)
        scratch = self._folders.scratch(run.key)
        try:
            slot = self._slots.get(run.start.slot)
            async with slot.lock:
                try:
                    with self._log_limiter.limited(log, run.start.program, scratch / LOG_POSITION):
                        ended = await self._execute_or_heal(run, slot, heard)
                    await self._slots.end_orphans(slot)
                    return ended
                finally:
                    self._slots.released(slot)
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
            return run.lost(str(error), snapshot_missing=True, missing_at=error.missing_at)
        except CodeMissing as error:
            return run.lost(str(error), code_missing=True)
        except (ProgramRefused, BundleError, LimitExceeded) as error:
            return run.failed(str(error), unable=isinstance(error, NodeUnable))
        except (HopyardError, CriuUnavailableError, OSError) as error:
            return run.lost(f"the run could not be prepared: {error}")
        except Exception as error:  # noqa: BLE001 (an error of one run must not end the agent and other runs)
            _log.exception("%s: a bug in the agent", run.key)
            return run.lost(f"a bug in the node agent: {error!r}")

    async def _execute_or_heal(self, run: NodeRun, slot: AgentSlot, heard: Sink) -> resource_manager_pb2.RunEnded:
        """Execute a run. If it fails because its snapshot is damaged on this disk, fetch another copy and execute it again.

        If the process has reported or got a command, it is not executed again: the run is lost, and the next attempt fetches a copy. A
        damaged snapshot is a failure of the infrastructure, also if the program was the first to notice it. A snapshot that has not
        arrived yet cannot be the reason of a failure.
        """
        if not run.start.HasField("snapshot"):
            return await self._execute(run, slot, heard)
        sha256 = run.start.snapshot.sha256
        ended: resource_manager_pb2.RunEnded | None = None
        error: RunnerDied | _NothingReported | None = None
        # The scheduler may drop the snapshot as soon as the run has started. It stays until it was compared with its hash, because a
        # missing one counts as damage.
        with self._snapshots.use(sha256):
            try:
                ended = await self._execute(run, slot, heard)
            except (RunnerDied, _NothingReported) as raised:
                error = raised
            if not _is_failure(ended) or not run.arrived or await self._snapshots.intact(sha256):
                if error is not None:
                    raise error
                assert ended is not None
                return ended
            if run.reported or run.commanded:
                return run.lost(f"snapshot {sha256} was damaged on this disk")
            await asyncio.to_thread(shutil.rmtree, self._folders.scratch(run.key), ignore_errors=True)
            return await self._execute(run, slot, heard)

    def _delete(self, scratch: Path) -> None:
        """Delete a run's temporary folder in the background, so that neither the end of the run nor the next run waits for it."""
        deletion = asyncio.get_running_loop().run_in_executor(None, partial(shutil.rmtree, scratch, ignore_errors=True))
        self._deletions.add(deletion)
        deletion.add_done_callback(self._deletions.discard)

    async def _execute(self, run: NodeRun, slot: AgentSlot, heard: Sink) -> resource_manager_pb2.RunEnded:
        async with AsyncExitStack() as stack:
            snapshot_file, fetching = await self._coming(run, stack)
            start = _placed(run.start, await stack.enter_async_context(self._partitions.ready(run.start)))
            scratch, log = self._folders_of(run)
            host = await self._images.host(start, scratch, bool(slot.settings.gpus))
            code_folder = await self._code(start, scratch if host is None else Path(host.folder))
            preparation = prepared(run.key, start, code_folder, host)
            script = preparation.program.once
            if fetching is not None and (is_command(start.program) or start.world > 1):
                await arrived(run, fetching)
            runner = await (self._slots.script(slot, preparation, log) if script else self._runner(slot, preparation))
            if script:  # A script connects to the agent only when it reports, so announce its start now.
                heard(wire.AttachRequest(started=resource_manager_pb2.RunStarted(position=run.position)))
            if fetching is not None and (fetching.done() or not runner.awaits_snapshots):
                await arrived(run, fetching)
            message = wire.ApplicationStart(
                run=run_key_to_proto(run.key),
                start=start,
                code_folder=str(code_folder),
                snapshot_file=snapshot_file,
                snapshot_verified=run.fetched.size > 0,
                snapshot_awaited=fetching is not None and not fetching.done(),
                snapshot_folder=str(self._snapshots.folder),
                scratch_folder=str(scratch),
                lease_seconds=self.lease_seconds,
                log_file=str(log),
                gang=await gang_of(run.key, start, self.join_seconds, self._tickets),
                working_folder=str(preparation.working_folder),
                process=host,
            )
            if preparation.program.parent:
                message.command.arguments.extend(preparation.command)
                message.environment.update(preparation.variables)
            ended = await _made(run, runner, message, heard, fetching)
            if ended.HasField("snapshot"):
                ended.snapshot.CopyFrom(run.located(ended.snapshot))
        if script and ended.finished:
            if not (run.reported or snapshot_file):
                raise _NothingReported(NOTHING_REPORTED)
            ended.position = run.position
        return ended

    async def _coming(self, run: NodeRun, stack: AsyncExitStack) -> tuple[str, asyncio.Task[Fetched] | None]:
        """Start to fetch the snapshot of a run; protect the snapshot from deletion until `stack` ends.

        The end of `stack` also cancels the task that fetches it.

        Returns:
            The path at which the snapshot is when the task has succeeded, and the task.
            An empty path and None: the run starts without a snapshot.
        """
        if not run.start.HasField("snapshot"):
            return "", None
        sha256 = run.start.snapshot.sha256
        path = stack.enter_context(self._snapshots.use(sha256))
        fetch = self._snapshots.fetch(sha256, run.start.snapshot_peers, run.key.stream)
        return str(path), await stack.enter_async_context(beside(fetch))

    def _folders_of(self, run: NodeRun) -> tuple[Path, Path]:
        """Create a run's temporary folder and its log file, and return their paths."""
        scratch = self._folders.scratch(run.key)
        scratch.mkdir(FOLDER_MODE)
        log = self._folders.job_log(run.key.stream, run.key.job, run.key.rank)
        log.parent.mkdir(FOLDER_MODE, exist_ok=True)
        os.close(open_private(log, os.O_WRONLY))
        return scratch, log

    async def _code(self, start: resource_manager_pb2.StartRun, own: Path) -> Path:
        """Return the folder with the code of a run.

        Runs of trainers share one folder for each bundle. A command gets a copy in the run's folder `own`, because it may write there.
        For processes that are restored from an image, the returned folder in `own` is not created: their snapshot contains it.

        Raises:
            HopyardError, BundleError: The bundle is not available; see `Bundles.folder`.
        """
        program = start.program
        if is_command(program):
            copy = own / "code"
            if start.snapshot.provider != PROVIDER:
                await asyncio.to_thread(own.mkdir, FOLDER_MODE, exist_ok=True)
                await self._bundles.copy(program.bundle, copy)
            return copy
        return await self._bundles.folder(program.bundle) if program.bundle else self._folders.data

    async def _runner(self, slot: AgentSlot, preparation: Preparation) -> Runner:
        """Return a training process (runner) on a slot for a prepared program, connected to the agent.

        If the program has a memory limit L, and the slot's idle runner uses more than (L + min(D, L)) / 2 bytes, the runner is replaced
        by a new one. D is the maximum size of the program's data cache.

        Raises:
            RunnerDied: The runner could not be started, or did not attach in time.
            ProgramRefused: The environment of the program is not allowed.
        """
        program, definition = preparation.program, preparation.definition
        runner = await self._slots.runner(slot, program, definition)
        limit = definition.memory_bytes
        # The data cache of the runner is useful for this run, so its memory does not count.
        most = (limit + min(data_budget(definition), limit)) // 2
        if limit and runner.used and await asyncio.to_thread(used_bytes, runner.pid, most) > most:
            await runner.leave()
            runner = await self._slots.runner(slot, program, definition)
        return runner


class _NothingReported(Exception):
    """A script exited successfully without a report."""


def _is_failure(ended: resource_manager_pb2.RunEnded | None) -> bool:
    """Return whether a damaged snapshot may be why a run ended so. None: its process ended without an end of the run."""
    return ended is None or ended.reason in (common_pb2.RUN_END_REASON_LOST, common_pb2.RUN_END_REASON_FAILED)


def _with_last_lines(message: str, log: Path, since: int) -> str:
    said = log_reader.last_lines(log, since)
    return f"{message}; its last lines:\n{said}" if said else message


def _placed(start: resource_manager_pb2.StartRun, place: str) -> resource_manager_pb2.StartRun:
    """Return the start command `start` with its field `input`, a path or URL of the run's partition, replaced by the path `place`."""
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
    """Execute a run on a runner (training process), and return how it ended.

    The process may start before the snapshot has arrived. An error of fetching the snapshot then takes precedence over the reported
    end.

    Args:
        run: The run.
        runner: The runner.
        message: The message that starts the run.
        heard: Called with each message of the process.
        fetching: The task that fetches the run's snapshot; None: the run starts without one.

    Raises:
        RunnerDied: The process ended during the run.
        LimitExceeded: A watchdog ended the run.
        SnapshotMissing, HopyardError, OSError: The snapshot could not be fetched.
    """
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
        # Before a script attaches, only this guard can detect that it hangs.
        words = ("and was ended",) if runner.program.once else ()
        guards.append(SilenceGuard(run.start.iteration_timeout, lambda: runner.heard, lambda: run.training, *words))
    return guards
