"""Checks the data directory: write access, the process that uses it, free space, type of file system, duration of an fsync."""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from hopyard._common import formatting
from hopyard._common.private_files import check_own_folder
from hopyard.cli.connect import where
from hopyard.cli.doctor.check_result import Finding, missing, ok, problem
from hopyard.client.address import read_address
from hopyard.client.local_cluster.data_dir_lock import has_data, is_locked, lock_holder
from hopyard.client.local_cluster.processes import is_serving
from hopyard.errors import InvalidInput

LEAST_FREE: Final = 1 << 30
SLOW_SECONDS: Final = 0.05
_TRIES: Final = 7
_BLOCK: Final = 4096
_NETWORK: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "afs", "ceph", "glusterfs"})


def data_folder(data: Path) -> Finding:
    """Check that the data directory can be written, or can be created; if not, the outcome is PROBLEM.

    The finding names the process that uses the directory, if any, which is no problem.
    """
    name = "data folder"
    if not data.exists():
        parent = _there(data)
        if not os.access(parent, os.W_OK | os.X_OK):
            return problem(
                name, f"{data} cannot be created: {parent} is not writable", "name another: --data DIR", needed=True
            )
        return ok(name, f"{data} does not exist yet; the first run creates it", needed=True)
    if not data.is_dir():
        return problem(name, f"{data} is not a folder", "name another: --data DIR", needed=True)
    try:
        check_own_folder(data)
    except InvalidInput as error:
        return problem(name, str(error), "only a folder that nobody else can change is safe", needed=True)
    if not os.access(data, os.W_OK | os.X_OK):
        return problem(
            name, f"{data} is not writable", "change its permissions, or name another: --data DIR", needed=True
        )
    if not has_data(data):
        return ok(name, f"{data}: no cluster has run here", needed=True)
    if is_locked(data):
        holder = lock_holder(data)
        who = f"{holder[1]} (process {holder[0]})" if holder else "another process"
        return ok(name, f"{data}: {who} serves it at {read_address(data) or 'no address yet'}", needed=True)
    if served := served_at(data):
        return ok(name, f"{data}: a scheduler serves it at {served}", needed=True)
    return ok(
        name, f"{data}: a stopped cluster", f"hopyard experiments{where(None, data)} shows what is in it", needed=True
    )


def served_at(data: Path) -> str:
    """Return the address of the scheduler that serves a data directory of this user; empty: no cluster runs there.

    Services that were started one by one do not hold the lock of the directory, so the scheduler is asked.
    """
    try:
        address = read_address(data) or ""
    except InvalidInput:  # `data_folder` reports it.
        return ""
    return address if address and (is_locked(data) or asyncio.run(is_serving(address))) else ""


def disk(data: Path) -> list[Finding]:
    """Check the disk of the data directory: free space, type of file system, and duration of an fsync.

    PROBLEM: less than 1 GiB is free, it is a network file system, or the median fsync takes more than 50 ms.
    """
    folder = _there(data)
    usage = shutil.disk_usage(folder)
    room = f"{formatting.size(usage.free)} of {formatting.size(usage.total)} free at {folder}"
    if usage.free < LEAST_FREE:
        found = [problem("disk", room, "free some, or name another disk: --data DIR", needed=True)]
    else:
        found = [ok("disk", room, needed=True)]
    kind = file_system(folder)
    if kind in _NETWORK:
        advice = "SQLite needs a local disk: --data on one, or PostgreSQL (hopyard appstat --database)"
        found.append(problem("file system", f"{kind} at {folder}", advice))
    found.append(_durable(folder))
    return found


def file_system(folder: Path, mounts: Path = Path("/proc/mounts")) -> str:
    """Return the type of the file system that contains a folder, such as "ext4"; empty if it is unknown.

    Args:
        folder: The folder.
        mounts: The kernel's table of mounts; tests replace it.
    """
    try:
        lines = [line.split() for line in mounts.read_text().splitlines()]
    except OSError:
        return ""
    real = folder.resolve()
    places = [(Path(words[1].replace("\\040", " ")), words[2]) for words in lines if len(words) > 2]
    above = [(len(place.parts), kind) for place, kind in places if real == place or place in real.parents]
    return max(above, default=(0, ""), key=lambda one: one[0])[1]


def _durable(folder: Path) -> Finding:
    name = "durable write"
    try:
        # The file has no name (O_TMPFILE): a killed doctor leaves nothing in the folder.
        with tempfile.TemporaryFile(dir=folder) as file:
            seconds = []
            for _ in range(_TRIES):
                begin = time.perf_counter()
                file.write(os.urandom(_BLOCK))
                file.flush()
                os.fsync(file.fileno())
                seconds.append(time.perf_counter() - begin)
    except OSError as error:
        return missing(name, f"{folder}: {error.strerror}", "name a folder that you may write to: --data DIR")
    middle = statistics.median(seconds)
    detail = f"{middle * 1000:.1f} ms for 4 KiB and fsync (median of {_TRIES})"
    if middle > SLOW_SECONDS:
        return problem(name, detail, "each batch of events waits for one: put the data on a faster disk (--data DIR)")
    return ok(name, detail)


def _there(data: Path) -> Path:
    """Return the data directory if it exists, else its nearest parent that exists."""
    return next(one for one in (data.absolute(), *data.absolute().parents) if one.is_dir())
