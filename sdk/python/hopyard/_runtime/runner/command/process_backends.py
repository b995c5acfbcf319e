"""The processes of a command that a runner starts: plain ones, and ones that can be dumped and restored as a whole."""

from __future__ import annotations

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
from hopyard._runtime.criu.image_storage import Rooms
from hopyard._runtime.criu.process_group import MOUNT, OUTPUT, DumpableJob
from hopyard._runtime.runner.agent_connection import SPEAKER
from hopyard._runtime.runner.command.metrics import TrainingCommandError
from hopyard._runtime.snapshot_file import SnapshotFileInfo
from hopyard.v1 import application_pb2 as wire

_OURS: Final = ("HOPYARD_AGENT", "HOPYARD_AGENT_PID", SPEAKER)


class Body(Protocol):
    """What a run needs of its processes."""

    output: Path
    """Where their output goes; what was there when they began is not theirs."""

    def begin(self) -> Mapping[str, Any] | None:
        """Start or restore them; returns what was kept in the snapshot, None: there is none."""

    def poll(self) -> int | None:
        """The exit code of the program, negative for a signal; None: it has not ended."""

    def stop(self) -> None:
        """Have them stand still."""

    def proceed(self) -> None:
        """Have them go on."""

    def kill(self) -> None:
        """End them at once, from any thread; safe to call at any time."""

    def close(self) -> None:
        """End them, and leave nothing behind."""


class PlainBody:
    """A program in a group of its own, to be stopped while its runner goes on. Its output is the runner's: the run's log."""

    def __init__(self, start: wire.ApplicationStart) -> None:
        """Nothing runs yet."""
        self._start = start
        self._child: subprocess.Popen[bytes] | None = None
        self.output = Path(start.log_file)

    def begin(self) -> None:
        """Start it.

        Raises:
            CommandError: It cannot be.
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
            raise TrainingCommandError(f"{command[0]} cannot be started in {folder}: {error.strerror}") from error

    def poll(self) -> int | None:
        """How it has ended."""
        return self._child.poll() if self._child is not None else None

    def stop(self) -> None:
        """Have it stand still."""
        self._signal(signal.SIGSTOP)

    def proceed(self) -> None:
        """Have it go on."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it and what it has started."""
        self._signal(signal.SIGKILL)

    def close(self) -> None:
        """End it."""
        self.kill()
        if self._child is not None:
            self._child.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._child is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)


class DumpableBody:
    """A program that is dumped and restored with all that it has started."""

    def __init__(self, start: wire.ApplicationStart) -> None:
        """Nothing runs yet.

        Raises:
            CriuUnavailableError: The CRIU that the agent found is there no more.
        """
        self._start = start
        host = start.process
        memory = Path(host.memory_folder) if host.memory_folder else None
        rooms = Rooms(memory, host.memory_bytes, Path(start.scratch_folder))
        self.job = DumpableJob(look(Path(host.criu)), Path(host.folder), rooms)
        self.folder = self.job.folder
        self.output = self.folder / OUTPUT
        self.stopped = False
        """Whether it stands still."""

    def begin(self) -> Mapping[str, Any] | None:
        """Start it, or restore it.

        Raises:
            CommandError: It cannot be started, or cannot be restored with such hyperparameters.
            ProcessSnapshotError: It cannot be restored.
            SnapshotFileError: Its snapshot is damaged.
        """
        start = self._start
        if start.start.snapshot.provider == PROVIDER:
            file, sha256 = Path(start.snapshot_file), start.start.snapshot.sha256
            kept, self.stopped = self.job.restore(file, sha256, self._accept)
            return kept
        environment = program_environment(os.environ, start.environment)
        command, folder = list(start.command.arguments), start.working_folder
        place = str(self.folder) + folder.removeprefix(MOUNT) if folder.startswith(MOUNT) else folder
        program = os.path.join(place, command[0]) if "/" in command[0] else command[0]
        if not program.startswith(MOUNT) and shutil.which(program, path=environment.get("PATH")) is None:
            raise TrainingCommandError(f"{command[0]} cannot be started in {folder}: there is no such program")
        self.job.start(command, folder, environment)
        return None

    def dump(self, file: Path, kept: Mapping[str, Any], pending: Mapping[str, int]) -> SnapshotFileInfo:
        """Write a snapshot to a file; afterwards it stands still.

        Args:
            file: Where it goes.
            kept: What `begin` shall give back, elsewhere.
            pending: Files of its folder of which only what follows an offset is kept.

        Raises:
            ProcessSnapshotError: It cannot be dumped.
        """
        values = hyperparameters_from_proto(self._start.start.hyperparameters)
        info = self.job.dump(file, {"hyperparameters": values, **kept}, stopped=self.stopped, pending=pending)
        self.stopped = True
        return info

    def outside(self, place: str) -> Path:
        """Where something is that the program sees at `place`."""
        inside = place.removeprefix(f"{MOUNT}/")
        return self.folder / inside if inside != place else Path(place)

    def poll(self) -> int | None:
        """How it has ended."""
        return self.job.poll()

    def stop(self) -> None:
        """Have it stand still."""
        if not self.stopped:
            self.stopped = True
            self.job.signal(signal.SIGSTOP)

    def proceed(self) -> None:
        """Have it go on."""
        if self.stopped:
            self.stopped = False
            self.job.proceed()

    def kill(self) -> None:
        """End it and what it has started."""
        self.job.kill()

    def close(self) -> None:
        """End it, and let go what its images took."""
        self.job.close()

    def _accept(self, kept: Mapping[str, Any]) -> None:
        """A process keeps what it has in memory."""
        began, wanted = kept["hyperparameters"], hyperparameters_from_proto(self._start.start.hyperparameters)
        other = sorted(name for name in {*began, *wanted} if began.get(name) != wanted.get(name))
        if other:
            changes = ", ".join(f"{name} ({began.get(name)!r}, wanted {wanted.get(name)!r})" for name in other)
            raise TrainingCommandError(
                f"a process goes on with the hyperparameters that it began with: {changes}; forks with others need a trainer, or a "
                "script that gives hopyard.report() a checkpoint (snapshot.provider: framework)"
            )


def program_environment(inherited: Mapping[str, str], added: Mapping[str, str]) -> dict[str, str]:
    """The environment of the program: it speaks to nobody, so it gets nothing that says to whom."""
    return {name: value for name, value in inherited.items() if name not in _OURS} | dict(added)
