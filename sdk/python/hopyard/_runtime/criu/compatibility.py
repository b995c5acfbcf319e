"""The requirements of a process snapshot on its host: recorded at the dump, checked before a restore."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from hopyard._runtime.criu.errors import RestoreMismatchError
from hopyard._runtime.criu.procfs import programs

FORMAT: Final = 1
_INSTRUCTIONS: Final = re.compile(
    r"(sse|ssse|avx|amx|bmi|xsave)\w*|fma|f16c|adx|abm|popcnt|movbe|aes|vaes|v?pclmulqdq|gfni|sha_ni|rdrand|rdseed|"
    r"asimd\w*|sve\w*|sm[34]|sha[0-9]*|crc32|atomics"
)
_SHOWN: Final = 4


def needs(pids: Iterable[int], mount: str) -> dict[str, Any]:
    """Return the requirements of processes: architecture, CPU instruction sets, and size of each program and library in use.

    Args:
        pids: Process ids.
        mount: Folder whose files are omitted, because the snapshot contains them.

    Returns:
        A JSON object for `check`.
    """
    files = sorted({file for pid in pids for file in programs(pid) if not file.startswith(f"{mount}/")})
    return {
        "format": FORMAT,
        "machine": platform.machine(),
        "cpu": sorted(instructions()),
        "files": {file: _size(file) for file in files},
    }


def instructions(cpuinfo: Path = Path("/proc/cpuinfo")) -> set[str]:
    """Return the names of a CPU's optional instruction sets that programs may use, such as `avx2`; empty if none is listed.

    Args:
        cpuinfo: File to read, in the format of /proc/cpuinfo.
    """
    for line in cpuinfo.read_text().splitlines():
        if line.startswith(("flags", "Features")):
            return {word for word in line.partition(":")[2].split() if _INSTRUCTIONS.fullmatch(word)}
    return set()


def check(needed: Mapping[str, Any], have: set[str] | None = None) -> None:
    """Check that this host meets the requirements of a process snapshot.

    Args:
        needed: Result of `needs` at the dump.
        have: Instruction sets of the CPU; None: read them from this host.

    Raises:
        RestoreMismatchError: The host lacks a requirement; the message names it.
    """
    if needed["format"] != FORMAT:
        raise RestoreMismatchError(f"the image has format {needed['format']}; this version reads {FORMAT}")
    if needed["machine"] != platform.machine():
        raise RestoreMismatchError(f"the image is of a {needed['machine']} process; this host is {platform.machine()}")
    if lacking := sorted(set(needed["cpu"]) - (instructions() if have is None else have)):
        raise RestoreMismatchError(
            f"this CPU lacks {_listed(lacking)}, which the CPU has on which the process started; allowed: nodes whose CPUs have "
            "all of its instruction sets"
        )
    files: Mapping[str, int] = needed["files"]
    missing = [file for file in files if not os.path.exists(file)]
    if missing:
        raise RestoreMismatchError(
            f"the process runs {_listed(missing)}, which this node does not have; the interpreter and its libraries must be the "
            "same on all nodes, at the same paths"
        )
    other = [f"{file} ({_size(file)} bytes, was {size})" for file, size in files.items() if _size(file) != size]
    if other:
        raise RestoreMismatchError(
            f"the process runs files that differ on this node: {_listed(other)}; the interpreter and its libraries must be "
            "the same on all nodes"
        )


def _size(file: str) -> int:
    try:
        return os.stat(file).st_size
    except OSError:
        return -1


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
