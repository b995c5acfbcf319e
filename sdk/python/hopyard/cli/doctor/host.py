"""Checks this host: Python, cores, memory, GPUs, limits, sockets, loopback network, CRIU."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from typing import Final

from hopyard._common import formatting
from hopyard._runtime.processes.cpus import CGROUPS, cpu_quota
from hopyard.cli.doctor.check_result import Finding, missing, ok, problem

LEAST_PYTHON: Final = (3, 11)
LEAST_FILES: Final = 1024
LEAST_MEMORY: Final = 512 << 20
LEAST_SHARED: Final = 128 << 20


def python() -> Finding:
    """Check that the Python interpreter is at least version 3.11."""
    found = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info < LEAST_PYTHON:
        wanted = ".".join(map(str, LEAST_PYTHON))
        return problem("python", found, f"install Python {wanted} or newer, and hopyard in it", needed=True)
    return ok("python", f"{found}, {platform.system()} {platform.machine()}", needed=True)


def cores(cgroup: Path = CGROUPS) -> Finding:
    """Report the number of CPUs that this process may use, and check that other programs do not load them.

    The outcome is PROBLEM if the load average of the last minute exceeds 1.5 times this number.

    Args:
        cgroup: The folder of the control group, which may limit the CPUs; tests replace it.
    """
    there = len(os.sched_getaffinity(0))
    quota = cpu_quota(cgroup)
    load = os.getloadavg()[0]
    detail = formatting.count(there, "core") + (f", of which {quota:g} may be used (cgroup)" if quota else "")
    detail += f", load {load:.1f}"
    usable = min(there, quota) if quota else there
    if load > 1.5 * usable:
        return problem("cores", detail, "other programs use the CPUs: training will be slow and its times misleading")
    return ok("cores", detail)


def memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = CGROUPS) -> Finding:
    """Check that at least 512 MiB of main memory are available.

    Args:
        meminfo: The kernel's file of memory sizes; tests replace it.
        cgroup: The folder of the control group, which may limit the memory; tests replace it.
    """
    numbers = _meminfo(meminfo)
    total, free = numbers.get("MemTotal", 0), numbers.get("MemAvailable", 0)
    limit = _number(cgroup / "memory.max")
    detail = f"{formatting.size(free)} of {formatting.size(total)} free" + (
        f", limit {formatting.size(limit)} (cgroup)" if limit else ""
    )
    if min(free, limit or free) < LEAST_MEMORY:
        return problem(
            "memory", detail, "free some: the services need about 250 MiB, each import of torch about 220 MiB"
        )
    return ok("memory", detail)


def shared_memory(folder: Path = Path("/dev/shm")) -> Finding:  # noqa: S108 - nothing is written to it
    """Check that 128 MiB of shared memory are free in `folder`, through which worker processes of data loaders pass their batches."""
    try:
        found = os.statvfs(folder)
    except OSError as error:
        advice = "data loaders with workers need it: mount a tmpfs there"
        return missing("shared memory", f"{folder}: {error.strerror}", advice)
    free = found.f_bavail * found.f_frsize
    if free < LEAST_SHARED:
        advice = "data loaders with workers fail with so little: docker run --shm-size=1g, or num_workers=0"
        return problem("shared memory", f"{formatting.size(free)} free in {folder}", advice)
    return ok("shared memory", f"{formatting.size(free)} free in {folder}")


def gpus(variable: str | None = None) -> Finding:
    """List the GPUs that NVML reports, and say which of them CUDA_VISIBLE_DEVICES hides.

    `variable` is the value of CUDA_VISIBLE_DEVICES; None: that of this process.
    """
    from hopyard._runtime.gpus.detection import detect
    from hopyard._runtime.gpus.selection import VARIABLE, visible_devices

    inventory = detect()
    variable = os.environ.get(VARIABLE) if variable is None else variable
    seen, warning = visible_devices(inventory.devices, variable)
    others = "; ".join(inventory.unsupported)
    if not inventory.devices:
        advice = "training uses CPUs; docs/gpus.md says which GPUs are supported and what they need"
        if inventory.problems:
            return problem("gpus", "; ".join([*inventory.problems, *inventory.unsupported]), advice)
        return missing("gpus", others or "none (NVML finds no driver of NVIDIA)", advice)
    listed = "; ".join(
        f"{one.index} {f'{one.uuid} ' if one.parent else ''}{one.model}, {formatting.size(one.memory_bytes)}"
        for one in inventory.devices
    )
    detail = f"{len(inventory.devices)}: {listed}" + (f"; {others}" if others else "")
    if len(seen) < len(inventory.devices):
        detail += f"; {VARIABLE}={variable} shows {len(seen)} of them"
    troubles = [*inventory.problems, *([warning] if warning else [])]
    if troubles:
        return problem("gpus", detail, "; ".join(troubles))
    return ok("gpus", detail)


def limits() -> Finding:
    """Check that this process may open at least 1024 files, and report the limit on processes."""
    files, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    processes = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    detail = f"{_limit(files)} open files, {_limit(processes)} processes"
    if 0 <= files < LEAST_FILES:
        return problem("limits", detail, f"raise the open files: ulimit -n {min(hard, 4096) if hard > 0 else 4096}")
    return ok("limits", detail)


def sockets() -> Finding:
    """Check that processes can connect over a Unix socket, as services on one host do; if not, the outcome is PROBLEM."""
    try:
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
            path = os.path.join(folder, "doctor.sock")
            server.bind(path)
            server.listen()
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(5)
                client.connect(path)
    except OSError as error:
        advice = "services on this computer communicate over Unix sockets: name another temporary directory with TMPDIR"
        return problem("sockets", f"{tempfile.gettempdir()}: {error.strerror or error}", advice, needed=True)
    return ok("sockets", "Unix sockets connect", needed=True)


def loopback() -> Finding:
    """Check that TCP connections over 127.0.0.1 work, as jobs on several slots need; if not, the outcome is PROBLEM."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                pass
    except OSError as error:
        advice = "jobs on several slots connect over 127.0.0.1: check the firewall or sandbox"
        return problem("loopback", f"127.0.0.1: {error.strerror or error}", advice)
    return ok("loopback", "127.0.0.1 answers")


def criu(memory: Path = Path("/dev/shm")) -> Finding:  # noqa: S108 - nothing is written to it
    """Check CRIU, the program that takes snapshots of whole processes: its version, the kernel, privileges, and memory for images.

    MISSING: CRIU is not installed or is switched off. PROBLEM: it cannot work here, its version is below 4.2, or less than 512 MiB
    are free in `memory`.

    Args:
        memory: The folder in memory to which images are written; tests replace it.
    """
    from hopyard._runtime.criu import CriuUnavailableError
    from hopyard._runtime.criu.binary import INSTALL, LEAST_SOCKETS, VARIABLE, find, look, switched_off

    tool = find()
    if tool is None:
        return missing(
            "criu",
            f"switched off ({VARIABLE}=off)" if switched_off() else "not installed",
            f"only snapshot.provider criu, and programs without checkpoints that are suspended, need it: {INSTALL}",
        )
    try:
        found = look(tool)
        found.check()
    except CriuUnavailableError as error:
        return problem("criu", f"{tool}, Linux {platform.release()}", str(error))
    detail = f"{found.shown} at {found.path} works on Linux {platform.release()}"
    try:
        free = shutil.disk_usage(memory).free
    except OSError:
        return problem(
            "criu", f"{detail}, no {memory}", "mount a tmpfs there: images go through the disk without, and take longer"
        )
    detail += f", {formatting.size(free)} for images in {memory}"
    if found.version < LEAST_SOCKETS:
        return problem("criu", detail, f"it fails on programs with open network connections; {INSTALL}")
    if free < LEAST_MEMORY:
        return problem(
            "criu", detail, "images that are larger go through the disk, and take longer: docker run --shm-size=4g"
        )
    return ok("criu", detail)


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _meminfo(file: Path) -> dict[str, int]:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return {}
    words = [line.replace(":", "").split() for line in lines]
    return {word[0]: int(word[1]) * 1024 for word in words if len(word) >= 2 and word[1].isdecimal()}


def _limit(value: int) -> str:
    return "no limit on" if value < 0 else str(value)
