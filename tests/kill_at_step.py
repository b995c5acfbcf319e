"""Kills a process before each of its changes of the disk, so that a test can check what a kill at any moment leaves.

    python -m tests.kill_at_step MODULE:FUNCTION FOLDER [ARGUMENT ...]

A kill does not depend on the load of the machine: it happens before the first change, before the second one, and so on, each time in a
copy of the folder, until the work ends before its kill.
"""

from __future__ import annotations

import importlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.timing import HANG_SECONDS

CHANGES: Final = ("chmod", "fsync", "link", "mkdir", "remove", "rename", "replace", "rmdir", "symlink", "unlink")
"""The functions of `os` before which a process is killed. `pathlib` and `shutil` call them, too."""

_REPOSITORY: Final = Path(__file__).parents[1]


def killed_at_each_step(work: Callable[..., object], folder: Path, *arguments: str) -> list[Path]:
    """Call `work(copy, *arguments)` in a process for each copy of a folder, and kill it before its first, second, ... change.

    Args:
        work: A function of a module.
        folder: The folder that is copied. The copies are beside it.
        arguments: Further arguments of the function.

    Returns:
        The copies in the order of their kills. In the last one, the work has ended by itself.
    """
    named = f"{work.__module__}:{work.__qualname__}"
    path = os.pathsep.join([str(_REPOSITORY), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, "-m", "tests.kill_at_step", named, folder, *arguments],
        check=True,
        timeout=HANG_SECONDS,
        env={**os.environ, "PYTHONPATH": path},
    )
    found = [_copy(folder, number) for number in itertools.takewhile(_copy_exists(folder), itertools.count(1))]
    if not found:
        raise RuntimeError(f"{named}: nothing was carried out in a copy of {folder}")
    return found


def _copy(folder: Path, number: int) -> Path:
    return folder.with_name(f"{folder.name}-{number}")


def _copy_exists(folder: Path) -> Callable[[int], bool]:
    return lambda number: _copy(folder, number).is_dir()


def _kill_before(change: int) -> None:
    """Let this process kill itself when it is about to change the disk for the `change`-th time."""
    steps = itertools.count(1)

    def step(original: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*arguments: Any, **options: Any) -> Any:
            if next(steps) == change:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **options)

        return stepped

    for name in CHANGES:
        setattr(os, name, step(getattr(os, name)))


def main(arguments: Sequence[str]) -> int:
    """Carry out the work in copies of the folder until it ends by itself, and return its exit code."""
    named, given, *rest = arguments
    module, _, name = named.partition(":")
    work, folder = getattr(importlib.import_module(module), name), Path(given)
    for change in itertools.count(1):
        copy = _copy(folder, change)
        shutil.copytree(folder, copy, symlinks=True)
        if not (child := os.fork()):
            _kill_before(change)
            work(copy, *rest)
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if ended != -signal.SIGKILL:
            return ended
    raise AssertionError("the loop ends with the work")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
