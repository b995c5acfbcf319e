"""The runner process: has one connection to the agent, and makes one run after another in the main thread."""

from __future__ import annotations

import os
import queue
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from hopyard._common.private_files import open_private
from hopyard._runtime.runner.agent_connection import AgentConnection
from hopyard._runtime.runner.command.log_run import LoggedRun
from hopyard._runtime.runner.failures import ended_by
from hopyard._runtime.runner.program import ProgramLoader
from hopyard._runtime.runner.strays import end_strays
from hopyard._runtime.runner.training_run import TrainingRun
from hopyard.v1 import application_pb2 as wire


class RunnerProcess:
    """The runner process: its connection to the agent, and the queue of its runs. The main thread calls `serve`, which makes them.

    Args:
        environment: Environment variables, with the agent's address, token and process id: HOPYARD_AGENT, HOPYARD_TOKEN and
            HOPYARD_AGENT_PID.

    Raises:
        KeyError: A variable is missing: no agent started the process.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._starts: queue.SimpleQueue[TrainingRun | LoggedRun | None] = queue.SimpleQueue()
        self._log_files: dict[TrainingRun | LoggedRun, str] = {}
        self._agent_pid = int(environment["HOPYARD_AGENT_PID"])
        self._attachment = AgentConnection(
            environment["HOPYARD_AGENT"],
            environment["HOPYARD_TOKEN"],
            take=self._take,
            leave=lambda: self._starts.put(None),
            awaits_snapshots=True,
        )

    def serve(self) -> None:
        """Make one run after another until the agent closes the connection, or a run leaves the process unfit for another run."""
        attachment = self._attachment
        attachment.open()
        programs = ProgramLoader()
        own_output = os.dup(1), os.dup(2)
        while (run := self._starts.get()) is not None:
            try:
                _redirect_output(self._log_files.pop(run))
            except OSError as error:  # For example, the disk is full.
                ended, _ = ended_by(error, run.boundary.position)
            else:
                ended = run.execute(programs) if isinstance(run, TrainingRun) else run.execute()
                if strays := end_strays():
                    sys.stderr.write(f"hopyard: killed processes that the run had left: {strays}\n")
                _restore_output(own_output)
            attachment.run = None
            attachment.outbox.send(wire.AttachRequest(ended=ended))
            if run.broken:
                break
            del run  # Frees the run's memory before the next one arrives.
        attachment.close()

    def _take(self, start: wire.ApplicationStart) -> None:
        outbox = self._attachment.outbox
        logged = start.HasField("command")
        run = LoggedRun(start, outbox, self._agent_pid) if logged else TrainingRun(start, outbox)
        self._log_files[run] = start.log_file
        self._attachment.run = run
        self._starts.put(run)


def _redirect_output(log_file: str) -> None:
    """Redirect stdout and stderr of this process to the file `log_file`, appending.

    Raises:
        OSError: The file cannot be opened.
    """
    handle = open_private(Path(log_file), os.O_WRONLY | os.O_APPEND)
    _flush()
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)


def _restore_output(own: tuple[int, int]) -> None:
    _flush()
    os.dup2(own[0], 1)
    os.dup2(own[1], 2)


def _flush() -> None:
    """Flush stdout and stderr; on an error, such as a full disk, the data stays buffered."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
