"""Tests of the processes that a run has left in a warm runner."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from subprocess import PIPE

import pytest

from hopyard._runtime.runner.strays import end_strays


@pytest.mark.parametrize(("name", "ends"), [("torch_shm_manager", False), ("daemon", True)])
def test_what_left_the_session_ends_but_helpers_of_libraries(tmp_path: Path, name: str, ends: bool) -> None:
    program = tmp_path / name
    shutil.copy("/bin/cat", program)
    with subprocess.Popen([program], stdin=PIPE, stdout=PIPE, bufsize=0, start_new_session=True) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            # `Popen` may return before the kernel has set the name of the process. A program that answers has its name.
            process.stdin.write(b"there\n")
            assert process.stdout.readline() == b"there\n"
            assert (process.pid in end_strays()) == ends
        finally:
            process.kill()
