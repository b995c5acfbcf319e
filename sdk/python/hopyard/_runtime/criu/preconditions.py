"""Checks before a dump that the processes use nothing that CRIU cannot dump."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from hopyard._runtime.criu import gpu
from hopyard._runtime.criu.binary import INSTALL, LEAST_SOCKETS, Criu
from hopyard._runtime.criu.errors import DumpRefusedError
from hopyard._runtime.criu.procfs import name, open_files

_INSTEAD: Final = "give hopyard.report() a checkpoint instead (snapshot.provider: framework)"
_LISTENING: Final = "0A"


def refuse(pids: Iterable[int], criu: Criu) -> list[int]:
    """Check processes before a dump, and return the ids of those that use a GPU.

    Args:
        pids: Process ids.
        criu: The CRIU that will dump them; its version determines what it supports.

    Raises:
        DumpRefusedError: A process cannot be dumped; the message names the process, the reason and a remedy.
    """
    pids = list(pids)
    for pid in pids:
        files = open_files(pid)
        if any("[io_uring]" in file for file in files):
            raise DumpRefusedError(
                f"{name(pid)} uses io_uring, as torchrun and torch.distributed do, which CRIU cannot dump; {_INSTEAD}"
            )
        sockets = {file[len("socket:[") : -1] for file in files if file.startswith("socket:[")}
        if sockets and criu.version < LEAST_SOCKETS and _connected(pid) & sockets:
            raise DumpRefusedError(
                f"{name(pid)} has open network connections, which CRIU {criu.shown} cannot dump; {INSTALL}"
            )
    return gpu.users(pids)


def _connected(pid: int) -> set[str]:
    """Return the inode numbers of the TCP sockets in the network namespace of the process `pid`, except those that listen.

    The set is empty if the process has ended.
    """
    found = set()
    for kind in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]
        except OSError:
            continue
        parts = [line.split() for line in lines]
        found |= {part[9] for part in parts if len(part) > 9 and part[3] != _LISTENING}
    return found
