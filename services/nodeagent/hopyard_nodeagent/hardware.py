"""Describes the hardware of slots as text. A measurement on one slot applies only to slots with an equal description."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_CPUS: Final = Path("/proc/cpuinfo")
_ASKED: Final = ("--query-gpu=index,name", "--format=csv,noheader")
_SECONDS: Final = 10.0
_LONGEST: Final = 200


def hardware(cpus: str, gpus: Mapping[int, str], mine: Sequence[int]) -> str:
    """Return a description of a slot's hardware: the CPUs of its host and the slot's GPUs, if it has any.

    Args:
        cpus: Description of the host's CPUs (`cpus`).
        gpus: Names of the host's GPUs by index (`gpus`).
        mine: Indices of the slot's GPUs.

    Returns:
        The description; empty if the name of one of the slot's GPUs is unknown.
    """
    if not all(index in gpus for index in mine):
        return ""
    counts = Counter(gpus[index] for index in mine)
    return ", ".join([cpus, *(f"{count} x {name}" for name, count in sorted(counts.items()))])[:_LONGEST]


def cpus(listed: Path = _CPUS) -> str:
    """Return the CPU model and the number of hardware threads of this host.

    The model is read from `listed`, the kernel's list of CPUs. If that fails, it is the processor or architecture that Python names.
    """
    return f"{_model(listed) or platform.processor() or platform.machine()}, {os.cpu_count() or 1} CPUs"


def gpus() -> Mapping[int, str]:
    """Return the names of this host's NVIDIA GPUs by index, from nvidia-smi; empty if it fails. It may take up to 10 s."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    try:
        said = subprocess.run([tool, *_ASKED], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return named(said.stdout) if said.returncode == 0 else {}


def named(lines: str) -> Mapping[int, str]:
    """Parse lines such as `0, NVIDIA H200` into names of GPUs by index. Other lines are ignored."""
    found = {}
    for line in lines.splitlines():
        index, comma, name = line.partition(",")
        if comma and index.strip().isdecimal() and name.strip():
            found[int(index)] = name.strip()
    return found


def _model(listed: Path) -> str:
    """Return the model name of the first CPU in the file `listed`, the kernel's list of CPUs; empty: it has none or cannot be read."""
    try:
        lines = listed.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
