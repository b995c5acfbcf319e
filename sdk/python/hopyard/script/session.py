"""The session of a script that is attached to its agent: begins with the first call of `hopyard.script`, and makes one run."""

from __future__ import annotations

import atexit
import os
import queue
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import grpc

from hopyard._runtime.runner import converters
from hopyard._runtime.runner.agent_connection import SPEAKER, AgentConnection
from hopyard._runtime.runner.boundary import Boundary
from hopyard._runtime.runner.control import EndRun, Restate, Save, Train
from hopyard._runtime.runner.failures import ended_by
from hopyard._runtime.runner.watchdog import EXIT_HUNG, ProcessExit, die_with
from hopyard._runtime.snapshot_file import SnapshotFileError, pack_entry
from hopyard._runtime.snapshot_folder import loadable
from hopyard.trainer import IterationReport
from hopyard.v1 import application_pb2 as wire
from hopyard.v1 import resource_manager_pb2


class ScriptRun:
    """Represents the run of a script for `AgentConnection`, the connection of the script's process to its agent.

    The connection passes the agent's messages to `boundary` and regularly calls `trouble`.

    Args:
        boundary: The object that receives the agent's commands for the run.
    """

    def __init__(self, boundary: Boundary) -> None:
        self.boundary = boundary

    def trouble(self, now: float) -> ProcessExit | None:
        """Return why the process must end immediately, or None if it need not.

        It must if an iteration has taken longer than the experiment's iteration time-out.

        Args:
            now: The current time in monotonic seconds.
        """
        if self.boundary.hung(now):
            return ProcessExit(EXIT_HUNG, "an iteration took longer than the experiment's iteration time-out")
        return None

    def end_children(self) -> None:
        """Do nothing: the script itself must ensure that its child processes end with it."""


class ScriptSession:
    """Makes the run of a script over a connection to its agent: sends the reports, saves checkpoints, waits for decisions.

    Only the process that creates it may report; its children may not. Unless `report` ended the run, the agent determines the end of
    the run from the exit code of the script.

    The constructor attaches to the agent and receives the run; call `begin` next.

    Args:
        environment: Environment variables that the agent has set.
        began: Time at which the script began, in seconds of `time.monotonic`.
        resume: Whether the script continues from the checkpoint, if there is one; else its positions begin at 0.

    Raises:
        RuntimeError: Another process makes the reports of this run.
    """

    def __init__(self, environment: Mapping[str, str], *, began: float, resume: bool) -> None:
        if "HOPYARD_TOKEN" not in environment:
            raise RuntimeError(_elsewhere(f"process {environment[SPEAKER]}"))
        self._process = os.getpid()
        self._resume = resume
        self._over: SystemExit | None = None
        self._arrived: queue.SimpleQueue[tuple[wire.ApplicationStart, Boundary] | grpc.RpcError] = queue.SimpleQueue()
        agent_pid = int(environment["HOPYARD_AGENT_PID"])
        if os.getppid() == agent_pid:  # If a shell, for example, is the parent, only the lease detects a lost agent.
            die_with(agent_pid)
        self._attachment = AgentConnection(
            environment["HOPYARD_AGENT"],
            environment["HOPYARD_TOKEN"],
            take=self._take,
            leave=lambda: None,
            refused=self._arrived.put,
        )
        self._attachment.open()
        arrived = self._arrived.get()
        if isinstance(arrived, grpc.RpcError):
            self._attachment.close()
            raise RuntimeError(f"{_elsewhere('another process')} (the run's agent says: {arrived.details()})")
        self._start, self._boundary = arrived
        self._checkpoint: Path | None = None
        self._began = began
        atexit.register(self._leave)

    def begin(self) -> None:
        """Load the checkpoint, and wait until the script may train.

        Raises:
            SystemExit: There is nothing left to train, or the checkpoint could not be loaded.
        """
        began, start = self._began, self._start.start
        if self._resume and start.HasField("snapshot"):
            folder = Path(self._start.scratch_folder) / "checkpoint"
            try:
                folder = loadable(Path(self._start.snapshot_file), start.snapshot.sha256, folder)
            except (SnapshotFileError, OSError) as error:
                self._fail(error)
            self._checkpoint = next(folder.iterdir())
        self._boundary.started(self.position, finished=False)
        self._go_on(None)
        self._began = began  # The time since the start of the script is part of the first iteration.

    @property
    def position(self) -> int:
        """The last reported position, or the start position."""
        return self._boundary.position

    def need_own_process(self) -> None:
        """Raise RuntimeError if this is not the process that created the session, such as a forked child."""
        if os.getpid() != self._process:
            raise RuntimeError(_elsewhere(f"process {self._process}"))

    def report(self, position: int, metrics: Mapping[str, float], checkpoint: Path | None) -> None:
        """Report a position larger than the last one, and wait until the script may continue to train.

        Args:
            position: The position.
            metrics: Metrics by name.
            checkpoint: File or folder with the training state, which is packed before this returns if a snapshot is needed; None: the
                position cannot be saved.

        Raises:
            SystemExit: The run ends here.
        """
        if self._over is not None:  # The script caught the exception and reports again.
            raise self._over
        now = time.monotonic()
        self._boundary.iteration_began = None
        self._boundary.report(IterationReport(position, metrics, now - self._began), savable=checkpoint is not None)
        self._go_on(checkpoint)

    def checkpoint(self) -> Path | None:
        """Return the file or folder from which the script must continue; None: it starts from scratch.

        Raises:
            RuntimeError: The script has already reported.
        """
        if not self._resume:
            raise RuntimeError(
                "hopyard.checkpoint() was called after hopyard.report(); allowed: before the first report, which then "
                "counts on from the checkpoint's position"
            )
        return self._checkpoint

    def _take(self, start: wire.ApplicationStart) -> None:
        plan = converters.plan(start)
        boundary = Boundary(start, self._attachment.outbox, plan if self._resume else replace(plan, position=0))
        self._attachment.run = ScriptRun(boundary)
        self._arrived.put((start, boundary))

    def _go_on(self, checkpoint: Path | None) -> None:
        """Save, or wait for a decision, as the agent's commands require, until the next iteration may begin.

        Args:
            checkpoint: The checkpoint of the last report; None: there is none, and the agent's commands then order no save.

        Raises:
            SystemExit: The run ends here.
        """
        boundary = self._boundary
        while True:
            match boundary.next():
                case Train():
                    self._began = boundary.iteration_began = time.monotonic()
                    return
                case Restate():
                    boundary.report(converters.restatement(self.position, finished=False), savable=False)
                case Save():
                    assert checkpoint is not None
                    self._save(checkpoint)
                case EndRun(reason, with_snapshot):
                    self._end(boundary.ended(reason, with_snapshot), 0)

    def _save(self, checkpoint: Path) -> None:
        try:
            self._boundary.save(lambda file: pack_entry(checkpoint, file, durable=False))
        except (SnapshotFileError, OSError) as error:
            self._fail(error)

    def _fail(self, error: Exception) -> NoReturn:
        ended, _ = ended_by(error, self.position, Path(self._start.scratch_folder))
        sys.stderr.write(f"hopyard: {ended.message}\n")
        self._end(ended, 1)

    def _end(self, ended: resource_manager_pb2.RunEnded, code: int) -> NoReturn:
        self._attachment.run = None
        self._attachment.outbox.send(wire.AttachRequest(ended=ended))
        self._over = SystemExit(code)
        raise self._over

    def _leave(self) -> None:
        """At the exit of the script, wait a limited time until the agent has read all messages, and close the connection."""
        if os.getpid() == self._process:
            self._attachment.close()


def _elsewhere(speaker: str) -> str:
    return (
        f"{speaker} speaks for this run, and process {os.getpid()} cannot; allowed: one process of a run that calls "
        "hopyard.report() and hopyard.checkpoint(), such as rank 0"
    )
