"""Starts a cluster with `hopyard up` in a folder, and runs commands on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.golden import product
from tests.golden.names import REPOSITORY

_START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 60.0


class ClusterError(RuntimeError):
    """A cluster did not start, or one of its commands failed."""


@contextmanager
def up(data: Path, agents: int) -> Iterator[str]:
    """Run a cluster with one-slot agents and yield the scheduler's address."""
    log = data.with_suffix(".log")
    options = ["--data", str(data), "--agents", str(agents), "--slots", "1"]
    with log.open("wb") as output:
        process = subprocess.Popen(_command("up", *options), stdout=output, stderr=output, env=_environment())
    try:
        yield _address(process, log, data)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def call(*arguments: str) -> Any:
    """Run a command with `--json` in a separate process and return its document.

    Raises:
        ClusterError: The command failed.
    """
    done = subprocess.run(
        _command(*arguments, "--json"), capture_output=True, text=True, env=_environment(), check=False
    )
    if done.returncode:
        raise ClusterError(f"hopyard {' '.join(arguments)}: exit code {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", product.command_module(), *arguments]


def _environment() -> dict[str, str]:
    path = os.pathsep.join([*(entry for entry in sys.path if entry), str(REPOSITORY)])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOPYARD_")}
    return {**kept, "PYTHONPATH": path, "COLUMNS": "300"}


def _address(process: subprocess.Popen[bytes], log: Path, data: Path) -> str:
    """Wait until the cluster reports that it is up, and return the scheduler's address."""
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        complete, _, _ = log.read_text(encoding="utf-8").rpartition("\n")
        for line in complete.splitlines():
            if line.startswith("the cluster is up"):
                return (data / "scheduler.address").read_text(encoding="utf-8").strip()
        time.sleep(0.05)
    raise ClusterError(f"hopyard up did not start: {log.read_text(encoding='utf-8')[-2000:]}")
