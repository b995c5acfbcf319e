"""Tests of the limits of memory and processes, on this process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hopyard._runtime.criu import procfs
from hopyard._runtime.processes.process_limits import ResourceLimits

pytestmark = pytest.mark.quick


def test_a_process_within_its_limits_exceeds_none() -> None:
    assert ResourceLimits(memory_bytes=1 << 50, processes=1 << 20).excess(os.getpid()) == ""
    assert ResourceLimits(memory_bytes=0, processes=1 << 20).excess(os.getpid()) == ""
    assert ResourceLimits().excess(1 << 22) == "", "it has ended"


def test_the_exceeded_limit_is_named_with_what_was_found() -> None:
    memory = ResourceLimits(memory_bytes=1 << 20, processes=1 << 20).excess(os.getpid())
    assert memory.startswith("out of memory: it used ")
    assert memory.endswith(" of its limit of 1.0 MiB")
    assert ResourceLimits(processes=0).excess(os.getpid()) == "it has started more than 0 processes"


def test_memory_whose_shared_part_is_hidden_counts_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "tree", lambda pid, most=None: [os.getpid(), os.getpid()])
    monkeypatch.setattr(Path, "read_text", _without_rollup(Path.read_text))
    assert ResourceLimits(memory_bytes=1 << 20).excess(os.getpid()).startswith("out of memory: it used ")


def _without_rollup(read: Callable[[Path], str]) -> Callable[[Path], str]:
    def read_text(path: Path) -> str:
        if path.name == "smaps_rollup":
            raise PermissionError(path)
        return read(path)

    return read_text
