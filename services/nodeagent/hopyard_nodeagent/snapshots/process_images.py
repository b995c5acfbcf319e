"""What this node offers for snapshots of whole processes: a CRIU that works, and room in memory for images."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from hopyard._runtime.criu import AUTO, PROVIDER, CriuUnavailableError, procfs
from hopyard._runtime.criu.binary import VARIABLE, Criu, find, look, switched_off
from hopyard._runtime.criu.process_group import MOUNT
from hopyard.v1 import resource_manager_pb2
from hopyard.v1.application_pb2 import ProcessHost
from hopyard_nodeagent.runs.launch_spec import NodeUnable, is_command

_log = logging.getLogger(__name__)

MEMORY: Final = Path("/dev/shm")  # noqa: S108 (folders in it are this agent's own)
_END_SECONDS: Final = 10.0
_PYTHON: Final = re.compile(r"python[0-9.]*")


class ProcessImages:
    """Gives runs of commands what their processes are dumped and restored with.

    Args:
        named: The CRIU to use; empty: the one that is found, "off": none.
        home: What names the agent's data folder: no other agent's processes and images have it in their names.
        budget: Bytes of memory that images may take together; None: a quarter of this computer's.
    """

    def __init__(self, named: str, home: str, budget: int | None) -> None:
        """End the processes, and delete the images, that an earlier agent left."""
        self._named = named
        self._home = home
        self._budget = _quarter() if budget is None else budget
        self._memory = MEMORY / f"hopyard-{home}"
        self._criu: Criu | None = None
        self._none = False
        """Whether it was looked for in vain: who leaves the provider open is not kept waiting for another look."""
        self._looking = asyncio.Lock()
        left = procfs.mounted(MOUNT, home)
        if left:
            procfs.end(lambda: procfs.mounted(MOUNT, home), _END_SECONDS)
            _log.warning("ended %d processes of jobs that an earlier agent left behind: %s", len(left), left)
        self.clear()

    def clear(self) -> None:
        """Delete all images in memory."""
        shutil.rmtree(self._memory, ignore_errors=True)

    async def host(self, start: resource_manager_pb2.StartRun, scratch: Path, gpus: bool = False) -> ProcessHost | None:
        """What a run's processes are dumped and restored with; None: they are not.

        Args:
            start: The run.
            scratch: Its folder.
            gpus: Whether its machine has some.

        Raises:
            NodeUnable: Its experiment wants that, and this node cannot.
            CriuUnavailableError: It is to go on from such a snapshot, and this node cannot.
        """
        program = start.program
        restores = start.snapshot.provider == PROVIDER
        wanted = program.snapshot_provider == PROVIDER
        if not is_command(program) or not (restores or wanted or (_offered(start, gpus) and not self._none)):
            return None
        try:
            criu = await self._usable()
        except CriuUnavailableError as error:
            if restores:
                raise
            if wanted:
                raise NodeUnable(f"snapshot.provider: criu cannot be used on this node: {error}") from error
            self._none = True
            _log.info("no snapshots of processes are taken: %s", error)
            return None
        host = ProcessHost(criu=str(criu.path), folder=str(scratch / f"{self._home}.{secrets.token_hex(8)}"))
        with suppress(OSError):  # Without memory for them images are made on the disk.
            self._memory.mkdir(mode=0o700, exist_ok=True)
            host.memory_folder, host.memory_bytes = str(self._memory), self._budget
        return host

    async def _usable(self) -> Criu:
        async with self._looking:
            if self._criu is None:
                self._criu = await asyncio.to_thread(_checked, self._named)
                _log.info("CRIU %s at %s takes snapshots of processes", self._criu.shown, self._criu.path)
            return self._criu


def _checked(named: str) -> Criu:
    if switched_off(named):
        raise CriuUnavailableError(f"CRIU is switched off on this node: its agent has --criu off, or {VARIABLE}=off")
    criu = look(find(named))
    criu.check()
    return criu


def _offered(start: resource_manager_pb2.StartRun, gpus: bool) -> bool:
    """Whether a program that leaves the provider open may have no state but its processes.

    Not a script that goes on from a checkpoint. Nor one that may speak to its agent by gRPC, as other languages than Python do: that
    connection would not outlive a dump. A script that uses GPUs has to ask for it.
    """
    program = start.program
    if program.snapshot_provider != AUTO:
        return False
    if program.WhichOneof("kind") == "log":
        return True
    python = _PYTHON.fullmatch(Path(program.command.arguments[0]).name) is not None
    return python and not gpus and start.world <= 1 and not start.HasField("snapshot")


def _quarter() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
