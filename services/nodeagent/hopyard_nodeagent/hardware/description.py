"""Describes the hardware of slots as text. A measurement on one slot applies only to slots with an equal description."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hopyard._runtime.gpus import GpuDevice

_CPUS: Final = Path("/proc/cpuinfo")
_LONGEST: Final = 200


def hardware(cpus: str, gpus: Sequence[GpuDevice], slots_per_gpu: int = 1) -> str:
    """Return a description of a slot's hardware: the CPUs of its host and the slot's GPUs.

    Args:
        cpus: Description of the host's CPUs, as the function `cpus` returns it.
        gpus: The slot's GPUs; empty: it has none.
        slots_per_gpu: Number of slots that share each of these GPUs.

    Returns:
        The description; empty if a GPU has no model name, so that the slot cannot be compared with others.
    """
    if not all(device.model for device in gpus):
        return ""
    counts = Counter(device.model for device in gpus)
    part = f"/{slots_per_gpu}" if slots_per_gpu > 1 else ""
    text = ", ".join([cpus, *(f"{count}{part} x {name}" for name, count in sorted(counts.items()))])
    return "".join(filter(str.isprintable, text))[:_LONGEST]  # The scheduler refuses other characters.


def cpus(listed: Path = _CPUS) -> str:
    """Return the CPU model and the number of hardware threads of this host. `listed` is the kernel's list of CPUs."""
    return f"{_model(listed) or platform.processor() or platform.machine()}, {os.cpu_count() or 1} CPUs"


def _model(listed: Path) -> str:
    """Return the model name of the first CPU; empty if the kernel does not provide it."""
    try:
        lines = listed.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
