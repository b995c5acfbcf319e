"""The CPUs that this process may use: its CPU set (cpuset, affinity) and the CPU quota of its control groups."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Final

CGROUPS: Final = Path("/sys/fs/cgroup")
_MEMBERSHIP: Final = Path("/proc/self/cgroup")


def available_cpus(root: Path = CGROUPS, membership: Path = _MEMBERSHIP) -> int:
    """Return the number of CPUs that this process may use, >= 1: the size of its CPU set or its CPU quota, whichever is smaller.

    The quota is rounded down: 2.5 CPUs count as 2. A quota below 1 counts as 1.

    Args:
        root: The folder where control groups are mounted.
        membership: The kernel's list of the control groups of this process.
    """
    cpus = len(os.sched_getaffinity(0))
    quota = cpu_quota(root, membership)
    return cpus if quota is None else max(1, min(cpus, math.floor(quota)))


def cpu_quota(root: Path = CGROUPS, membership: Path = _MEMBERSHIP) -> float | None:
    """Return the smallest CPU quota of the control groups of this process, in CPUs; None: there is no quota.

    Args:
        root: The folder where control groups are mounted.
        membership: The kernel's list of the control groups of this process.
    """
    quotas = [_quota_of(folder) for folder in _folders(root, membership)]
    return min((quota for quota in quotas if quota is not None), default=None)


def _folders(root: Path, membership: Path) -> list[Path]:
    """Return the folders of the control groups of this process and of all groups that contain them, of version 1 and 2."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        lines = []
    found = {root, root / "cpu"}
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            top = root
        elif "cpu" in controllers.split(","):
            top = root / "cpu"
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        found |= {top.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)}
    return sorted(found)


def _quota_of(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").is_file():
            given, period = (folder / "cpu.max").read_text().split()
        else:
            given = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        quota = int(given) / int(period) if given not in ("max", "-1") else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
    return quota if quota is None or quota > 0 else None
