"""Tests that a service returns freed memory to the operating system."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import random
from pathlib import Path

from hopyard._net.server.heap import return_freed_memory

if not return_freed_memory():
    raise SystemExit(77)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


before, kept = resident(), []
sizes = random.Random(1)
for _ in range(20):
    blocks = [bytearray(b"x" * sizes.randrange(2**20, 2**23)) for _ in range(20)]
    kept.append(bytes(100_000))
    del blocks
print(resident() - before)
"""


@pytest.mark.merge
def test_large_blocks_return_to_the_operating_system_when_they_are_freed() -> None:
    """Without the settings of this module the process keeps 60 to 100 MiB."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("needs the GNU C library")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 20 * 2**20
