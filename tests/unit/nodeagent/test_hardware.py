"""Tests of the kinds of hosts and slots that agents report."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from hopyard_nodeagent import hardware

pytestmark = pytest.mark.quick

H200 = "NVIDIA H200"


def test_hosts_with_other_cpus_are_of_another_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Python itself calls `uname`, once in a process, so the test replaces the result.
    monkeypatch.setattr(platform, "processor", lambda: "RISC-V")
    listed = tmp_path / "cpuinfo"
    listed.write_text("processor\t: 0\nmodel name\t: AMD EPYC 7763\nprocessor\t: 1\nmodel name\t: AMD EPYC 7763\n")
    assert hardware.cpus(listed) == f"AMD EPYC 7763, {os.cpu_count()} CPUs"
    listed.write_text("processor\t: 0\nBogoMIPS\t: 50.00\n")
    assert hardware.cpus(listed) == hardware.cpus(tmp_path / "nothing") == f"RISC-V, {os.cpu_count()} CPUs"


def test_slots_with_other_gpus_are_of_another_kind() -> None:
    gpus = hardware.named(f"0, {H200}\n1, {H200}\n2, NVIDIA A100-SXM4-80GB\nno GPU at all\n")
    assert hardware.hardware("EPYC, 8 CPUs", gpus, ()) == "EPYC, 8 CPUs"
    assert hardware.hardware("EPYC, 8 CPUs", gpus, (0, 1)) == f"EPYC, 8 CPUs, 2 x {H200}"
    assert hardware.hardware("EPYC, 8 CPUs", gpus, (1, 2)) == f"EPYC, 8 CPUs, 1 x NVIDIA A100-SXM4-80GB, 1 x {H200}"


def test_a_slot_whose_gpus_have_no_names_is_of_no_kind() -> None:
    assert hardware.hardware("EPYC, 8 CPUs", {0: H200}, (0, 1)) == ""
