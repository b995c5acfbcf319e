"""The processes of a program that the runner starts: plain ones, and ones that can be dumped and restored with CRIU."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from hopyard._net.rpc.values import hyperparameters_from_proto
from hopyard._runtime.criu import PROVIDER
from hopyard._runtime.criu.binary import look
from hopyard._runtime.criu.image_storage import ImageFolders
from hopyard._runtime.criu.process_group import MOUNT, OUTPUT, DumpableJob
from hopyard._runtime.processes.process_family import MARK
from hopyard._runtime.runner.agent_connection import SPEAKER
from hopyard._runtime.runner.command.metrics import TrainingCommandError
from hopyard._runtime.snapshot_file import SnapshotFileInfo
from hopyard.v1 import application_pb2 as wire

_PERMANENT: Final = frozenset({errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR})
"""Error numbers of an OSError that each further start of the same command would raise."""

_OURS: Final = ("HOPYARD_AGENT", "HOPYARD_AGENT_PID", SPEAKER)


class ProgramProcesses(Protocol):
    """The interface through which `LoggedRun` starts, stops and ends the processes of its program."""

    output: Path
    """File to which the processes append their output; it may contain earlier output of other processes."""

    def begin(self) -> Mapping[str, Any] | None:
        """Start or restore the processes.

        Returns:
            After a restore, the data stored with the snapshot; None: the processes were started.

        Raises:
            TrainingCommandError: The program cannot be started, or the restored one was started with other hyperparameters.
            ProcessSnapshotError: The program cannot be restored.
            SnapshotFileError: The snapshot is damaged.
        """

    def poll(self) -> int | None:
        """Return the exit code of the program, negative for a signal; None if it has not ended."""

    def stop(self) -> None:
        """Stop the processes until `proceed`."""

    def proceed(self) -> None:
        """Let stopped processes continue."""

    def kill(self) -> None:
        """Kill the processes; may be called at any time, from any thread."""

    def close(self) -> None:
        """Kill the processes, wait for their end, and free their resources."""


class PlainProcesses:
    """A program in a separate process group, which cannot be saved. Its output is appended to the run's log.

    The constructor starts nothing; `begin` does.

    Args:
        start: Start message of the run.
    """

    def __init__(self, start: wire.ApplicationStart) -> None:
        self._start = start
        self._child: subprocess.Popen[bytes] | None = None
        self.output = Path(start.log_file)

    def begin(self) -> None:
        """Start the program.

        Raises:
            TrainingCommandError: The program cannot be started.
        """
        command, folder = list(self._start.command.arguments), self._start.working_folder
        try:
            self._child = subprocess.Popen(
                command,
                cwd=folder,
                env=program_environment(os.environ, self._start.environment),
                stdin=subprocess.DEVNULL,
                process_group=0,
            )
        except OSError as error:
            says = f"{command[0]} cannot be started in {folder}: {error.strerror}"
            raise TrainingCommandError(says, permanent=error.errno in _PERMANENT) from error

    def poll(self) -> int | None:
        """Return the exit code of the program, negative for a signal; None if it has not ended."""
        return self._child.poll() if self._child is not None else None

    def stop(self) -> None:
        """Stop the process group with SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def proceed(self) -> None:
        """Let the process group continue with SIGCONT."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process group."""
        self._signal(signal.SIGKILL)

    def close(self) -> None:
        """Kill the process group and wait for the end of the program."""
        self.kill()
        if self._child is not None:
            self._child.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._child is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)


class DumpableProcesses:
    """A program that is dumped and restored together with its child processes.

    The constructor starts nothing; `begin` does.

    Args:
        start: Start message of the run.

    Raises:
        CriuUnavailableError: The CRIU that the agent found cannot be used any more.
    """

    def __init__(self, start: wire.ApplicationStart) -> None:
        self._start = start
        host = start.process
        memory = Path(host.memory_folder) if host.memory_folder else None
        rooms = ImageFolders(memory, host.memory_bytes, Path(start.scratch_folder))
        self.job = DumpableJob(look(Path(host.criu)), Path(host.folder), rooms)
        self.folder = self.job.folder
        self.output = self.folder / OUTPUT
        self.stopped = False
        """Whether the processes are stopped."""

    def begin(self) -> Mapping[str, Any] | None:
        """Start the program, or restore it if the run has a process snapshot.

        Returns:
            After a restore, the data that was passed to `dump`; None: the program was started.

        Raises:
            TrainingCommandError: The program cannot be started, or the restored one was started with other hyperparameters.
            ProcessSnapshotError: The program cannot be restored.
            SnapshotFileError: The snapshot is damaged.
        """
        start = self._start
        if start.start.snapshot.provider == PROVIDER:
            file, sha256 = Path(start.snapshot_file), start.start.snapshot.sha256
            kept, self.stopped = self.job.restore(file, sha256, self._accept)
            return kept
        environment = program_environment(os.environ, start.environment)
        environment.pop(MARK, None)  # It would be part of the snapshot. The program's namespace finds its processes.
        command, folder = list(start.command.arguments), start.working_folder
        place = str(self.folder) + folder.removeprefix(MOUNT) if folder.startswith(MOUNT) else folder
        program = os.path.join(place, command[0]) if "/" in command[0] else command[0]
        if not program.startswith(MOUNT) and shutil.which(program, path=environment.get("PATH")) is None:
            says = f"{command[0]} cannot be started in {folder}: there is no such program"
            raise TrainingCommandError(says, permanent=True)
        self.job.start(command, folder, environment)
        return None

    def dump(self, file: Path, kept: Mapping[str, Any], pending: Mapping[str, int]) -> SnapshotFileInfo:
        """Write a snapshot of the processes to a file, and return its hash and size; afterwards the processes are stopped.

        Args:
            file: Path of the snapshot.
            kept: JSON values that are stored with the snapshot; `begin` returns them after a restore.
            pending: Offset in bytes by file name: of these files in the folder, only the part after the offset is stored.

        Raises:
            ProcessSnapshotError: The processes cannot be dumped.
        """
        values = hyperparameters_from_proto(self._start.start.hyperparameters)
        info = self.job.dump(file, {"hyperparameters": values, **kept}, stopped=self.stopped, pending=pending)
        self.stopped = True
        return info

    def outside(self, place: str) -> Path:
        """Return the path on this host of the file or folder that the program sees at the path `place`."""
        inside = place.removeprefix(f"{MOUNT}/")
        return self.folder / inside if inside != place else Path(place)

    def poll(self) -> int | None:
        """Return the exit code of the program, negative for a signal; None if it has not ended."""
        return self.job.poll()

    def stop(self) -> None:
        """Stop the processes with SIGSTOP."""
        if not self.stopped:
            self.stopped = True
            self.job.signal(signal.SIGSTOP)

    def proceed(self) -> None:
        """Let stopped processes continue."""
        if self.stopped:
            self.stopped = False
            self.job.proceed()

    def kill(self) -> None:
        """Kill the program and all its descendants."""
        self.job.kill()

    def close(self) -> None:
        """Kill the program and all its descendants, and delete its image folders."""
        self.job.close()

    def _accept(self, kept: Mapping[str, Any]) -> None:
        """Raise TrainingCommandError if a snapshot's process was started with hyperparameters other than the run's.

        A restored process has the values in its memory and cannot change them.

        Args:
            kept: Data stored with the snapshot.
        """
        began, wanted = kept["hyperparameters"], hyperparameters_from_proto(self._start.start.hyperparameters)
        other = sorted(name for name in {*began, *wanted} if began.get(name) != wanted.get(name))
        if other:
            changes = ", ".join(f"{name} ({began.get(name)!r}, wanted {wanted.get(name)!r})" for name in other)
            raise TrainingCommandError(
                f"a process goes on with the hyperparameters that it began with: {changes}; forks with others need a trainer, or a "
                "script that gives hopyard.report() a checkpoint (snapshot.provider: framework)"
            )


def program_environment(inherited: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the program.

    Args:
        inherited: Environment of the runner; its variables for the connection to the agent are omitted.
        added: Variables to add or replace.
    """
    return {name: value for name, value in inherited.items() if name not in _OURS} | dict(added)
