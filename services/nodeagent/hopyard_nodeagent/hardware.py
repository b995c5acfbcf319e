"""The kind of host that this is: what is measured on one machine holds for those of the same kind alone."""

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
    """A machine's hardware in words: its host's CPUs, and the GPUs that it has (`mine`), by their names.

    Returns:
        Empty where a GPU's name is not known.
    """
    if not all(index in gpus for index in mine):
        return ""
    counts = Counter(gpus[index] for index in mine)
    return ", ".join([cpus, *(f"{count} x {name}" for name, count in sorted(counts.items()))])[:_LONGEST]


def cpus(listed: Path = _CPUS) -> str:
    """The model of this host's CPUs and how many there are, hyper-threads counted."""
    return f"{_model(listed) or platform.processor() or platform.machine()}, {os.cpu_count() or 1} CPUs"


def gpus() -> Mapping[int, str]:
    """The names of this host's NVIDIA GPUs, by index, as their driver says them. Takes up to 10 s; empty where it says nothing."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    try:
        said = subprocess.run([tool, *_ASKED], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return named(said.stdout) if said.returncode == 0 else {}


def named(lines: str) -> Mapping[int, str]:
    """Names by index, from lines such as `0, NVIDIA H200`."""
    found = {}
    for line in lines.splitlines():
        index, comma, name = line.partition(",")
        if comma and index.strip().isdecimal() and name.strip():
            found[int(index)] = name.strip()
    return found


def _model(listed: Path) -> str:
    """What the kernel calls the first CPU; empty: it does not say (not every architecture's does)."""
    try:
        lines = listed.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
