"""Runs commands in a new process and returns which of the named modules it has imported."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.timing import HANG_SECONDS

_CODE = """
import contextlib, io, json, sys
from hopyard.cli.main import run

for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8")):
        assert run(command) == 0, command
print(json.dumps([name for name in json.loads(sys.argv[2]) if name in sys.modules]))
"""


def imported(commands: Sequence[str], where: Sequence[str], modules: Sequence[str]) -> list[str]:
    """Run commands of `hopyard` in one new process, and return those of `modules` that it has imported.

    Args:
        commands: The commands with their arguments, separated by blanks. Each must succeed.
        where: The options that select the cluster.
        modules: Full names of modules.
    """
    words = [[*command.split(), *where] for command in commands]
    done = subprocess.run(
        [sys.executable, "-c", _CODE, json.dumps(words), json.dumps(modules)],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_SECONDS,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found
