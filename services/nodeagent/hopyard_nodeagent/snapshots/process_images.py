"""Snapshots of whole processes on this node. The program CRIU saves a process to an image and restores it from there.

This module finds a working CRIU, and a folder in memory for images.
"""

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
    """Decides which runs of scripts and log programs use CRIU for snapshots, and configures CRIU for a run.

    The constructor ends the restored processes, and deletes the images in memory, that an earlier agent with this data folder left
    behind.

    Args:
        named: Path of the CRIU program; empty: search for it; "off": do not use CRIU.
        home: Id of the agent's data folder, by which its processes and images are recognized.
        budget: Maximum total size of images in memory, in bytes; None: a quarter of the computer's memory.
    """

    def __init__(self, named: str, home: str, budget: int | None) -> None:
        self._named = named
        self._home = home
        self._budget = _quarter() if budget is None else budget
        self._memory = MEMORY / f"hopyard-{home}"
        self._criu: Criu | None = None
        self._none = False
        """Whether CRIU was searched and cannot be used. Then the search is skipped for programs that do not require it."""
        self._looking = asyncio.Lock()
        left = procfs.mounted(MOUNT, home)
        if left:
            procfs.end(lambda: procfs.mounted(MOUNT, home), _END_SECONDS)
            _log.warning("ended %d processes of jobs that an earlier agent left behind: %s", len(left), left)
        self.clear()

    def clear(self) -> None:
        """Delete all images of this agent in memory."""
        shutil.rmtree(self._memory, ignore_errors=True)

    async def host(self, start: resource_manager_pb2.StartRun, scratch: Path, gpus: bool = False) -> ProcessHost | None:
        """Return the settings for saving and restoring the processes of a run; None: CRIU is not used for it.

        CRIU is not used for trainers, for programs with the snapshot provider `framework` that do not resume from a CRIU snapshot, and,
        with the provider `auto`, if the program or this node does not suit CRIU.

        Args:
            start: The start command of the run.
            scratch: The temporary folder of the run.
            gpus: Whether the slot of the run has GPUs.

        Raises:
            CriuUnavailableError: This node does not support CRIU, and the run resumes from a CRIU snapshot.
            NodeUnable: This node does not support CRIU, the experiment requires it, and the run does not resume from a CRIU snapshot.
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
        with suppress(OSError):  # If memory cannot be used, images are created on disk.
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
    """Return whether to use CRIU for a program that leaves the choice to the agent (`snapshot_provider` auto).

    It is used for log programs, and for Python scripts on one slot, with two exceptions: scripts that resume from a snapshot, and
    scripts with GPUs, which must request CRIU explicitly. It is not used for programs in other languages: these may use gRPC, and their
    gRPC connection would not survive the restoration.

    Args:
        start: The start command of the run.
        gpus: Whether the slot of the run has GPUs.
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
