"""Tests of the kinds of hosts and slots that agents report."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from hopyard._runtime.gpus import GpuDevice
from hopyard_nodeagent.hardware import description

pytestmark = pytest.mark.quick

H200 = "NVIDIA H200"


def test_hosts_with_other_cpus_are_of_another_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Python itself calls `uname`, once in a process, so the test replaces the result.
    monkeypatch.setattr(platform, "processor", lambda: "RISC-V")
    listed = tmp_path / "cpuinfo"
    listed.write_text("processor\t: 0\nmodel name\t: AMD EPYC 7763\nprocessor\t: 1\nmodel name\t: AMD EPYC 7763\n")
    assert description.cpus(listed) == f"AMD EPYC 7763, {os.cpu_count()} CPUs"
    listed.write_text("processor\t: 0\nBogoMIPS\t: 50.00\n")
    assert description.cpus(listed) == description.cpus(tmp_path / "nothing") == f"RISC-V, {os.cpu_count()} CPUs"


def test_slots_with_other_gpus_are_of_another_kind() -> None:
    first, second, other = GpuDevice(0, "a", H200), GpuDevice(1, "b", H200), GpuDevice(2, "c", "NVIDIA A100-SXM4-80GB")
    assert description.hardware("EPYC, 8 CPUs", ()) == "EPYC, 8 CPUs"
    assert description.hardware("EP\x1bYC,\xa0 8 CPUs", ()) == "EPYC, 8 CPUs"
    assert description.hardware("EPYC, 8 CPUs", (first, second)) == f"EPYC, 8 CPUs, 2 x {H200}"
    assert (
        description.hardware("EPYC, 8 CPUs", (second, other)) == f"EPYC, 8 CPUs, 1 x NVIDIA A100-SXM4-80GB, 1 x {H200}"
    )
    assert description.hardware("EPYC, 8 CPUs", (first,), 3) == f"EPYC, 8 CPUs, 1/3 x {H200}"


def test_a_slot_whose_gpus_have_no_names_is_of_no_kind() -> None:
    assert description.hardware("EPYC, 8 CPUs", (GpuDevice(0, "a", H200), GpuDevice(1))) == ""
