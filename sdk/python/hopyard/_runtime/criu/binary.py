"""Finds the CRIU program, checks that it works, and explains its error output."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hopyard._runtime.criu.errors import CriuUnavailableError

VARIABLE: Final = "HOPYARD_CRIU"
"""Environment variable with the path of the CRIU to use; "off": use none."""

OFF: Final = "off"
"""Value used in place of a path to disable CRIU."""

PRIVATE: Final = Path("/opt/hopyard/criu/criu")
"""Path where deploy/install-criu.sh installs CRIU."""

LEAST: Final = (4, 0)
"""Minimum version of CRIU; older versions do not know the vDSO of recent kernels."""

LEAST_SOCKETS: Final = (4, 2)
"""Minimum version for open network connections, on which older versions fail."""

INSTALL: Final = "run deploy/install-criu.sh, which installs a current version into a separate folder"

_SECONDS: Final = 20.0
_SYS_ADMIN: Final = 1 << 21
_KNOWN: Final = (
    ("Unexpected rt vDSO area bounds", f"this CRIU is too old for this kernel: {INSTALL}"),
    (r"io_uring", "a process uses io_uring, which CRIU cannot dump"),
    (r"No space left on device|ENOSPC", "there is no room for the image"),
    (r"has bad size|has bad mode|has bad build-id", "a file that a process has open or executes differs on this host"),
    (r"/dev/nvidia", "a process uses a GPU"),
    (r"Operation not permitted|EPERM", "CRIU lacks rights: it needs root with all capabilities"),
)
_HARMLESS: Final = ("Can't setup RLIMIT_NOFILE for self",)
"""Errors that CRIU reports in containers although it continues."""
_MOST_ERRORS: Final = 3


@dataclass(frozen=True, slots=True)
class Criu:
    """An installed CRIU program.

    Attributes:
        path: Path of the program.
        version: Version as numbers, such as (4, 2, 1).
    """

    path: Path
    version: tuple[int, ...]

    @property
    def shown(self) -> str:
        """The version as text, such as "4.2.1"."""
        return ".".join(map(str, self.version))

    def check(self) -> None:
        """Check with `criu check` that CRIU works on this host, and that this process may restore processes.

        Raises:
            CriuUnavailableError: CRIU does not work, or this process lacks the rights; the message says why.
        """
        if not _may_restore():
            raise CriuUnavailableError(
                "only root with CAP_SYS_ADMIN can restore processes; this process is not root or lacks the capability"
            )
        done = _run(str(self.path), "check")
        if done is None or done.returncode:
            why = "it takes too long" if done is None else explain(done.stdout + done.stderr)
            raise CriuUnavailableError(f"`criu check` fails ({self.path}): {why}")


def find(named: str = "", environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the path of the CRIU program to use; None if there is none.

    The sources are, in this order: `named`, the environment variable HOPYARD_CRIU, the PATH, and the path `PRIVATE`, where Hopyard's
    installation script puts CRIU. The name "off" means none.

    Args:
        named: Path from the configuration; empty: not configured.
        environment: Environment variables.
    """
    named = named or environment.get(VARIABLE, "")
    if named:
        return None if named == OFF else Path(named)
    on_path = shutil.which("criu", path=environment.get("PATH"))
    return Path(on_path) if on_path else PRIVATE if PRIVATE.is_file() else None


def switched_off(named: str = "", environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether CRIU is disabled by the value "off" of `named` or of the environment variable HOPYARD_CRIU.

    Args:
        named: Path from the configuration; empty: the environment variable decides.
        environment: Environment variables.
    """
    return (named or environment.get(VARIABLE, "")) == OFF


def look(path: Path | None) -> Criu:
    """Return the CRIU program at a path after checking its version.

    Args:
        path: Path of the program; None: no program was found.

    Raises:
        CriuUnavailableError: The program is missing, not CRIU, or too old.
    """
    if path is None:
        raise CriuUnavailableError(f"no CRIU is installed here: {INSTALL}")
    done = _run(str(path), "--version")
    found = re.search(r"Version: (\d+(?:\.\d+)*)", done.stdout) if done is not None else None
    if found is None:
        raise CriuUnavailableError(f"{path} is not a CRIU that can be run: {INSTALL}, or name another in {VARIABLE}")
    version = tuple(map(int, found[1].split(".")))
    if version < LEAST:
        wanted = ".".join(map(str, LEAST))
        raise CriuUnavailableError(f"{path} is CRIU {found[1]}; needs {wanted} or newer: {INSTALL}")
    return Criu(path, version)


def explain(log: str) -> str:
    """Return the first errors in CRIU's output `log` as one line, preceded by their meaning if it is known.

    If the output contains no errors, its last line is used instead; if the output is empty, a text that says so.
    """
    log = "\n".join(line for line in log.splitlines() if not any(harmless in line for harmless in _HARMLESS))
    errors = [line.partition("Error ")[2] for line in log.splitlines() if "Error (" in line]
    said = "; ".join(re.sub(r"^\([^)]*\): ", "", line).strip() for line in errors[:_MOST_ERRORS])
    said = said or next(iter(reversed(log.strip().splitlines())), "it printed nothing")
    for pattern, meaning in _KNOWN:
        if re.search(pattern, log):
            return f"{meaning} ({said})"
    return said


def _run(*command: str) -> subprocess.CompletedProcess[str] | None:
    """Run a program and return its output; return None if it could not be started or ran longer than 20 seconds."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None


def _may_restore() -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return os.geteuid() == 0 and bool(int(line.split()[1], 16) & _SYS_ADMIN)
    return False
