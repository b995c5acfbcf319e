"""Tests of the limits of memory and processes, on this process."""

from __future__ import annotations

import os

import pytest

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
    processes = ResourceLimits(processes=0).excess(os.getpid())
    assert processes.startswith("it has started ")
    assert processes.endswith(" processes; at most -1 are allowed")
