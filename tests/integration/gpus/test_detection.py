"""GPUs as NVML reports them: whole ones, MIG instances, broken ones, and a library that fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.nvml import TWO_GPUS, fake_nvml

_PROGRAM = """
import dataclasses, json
from hopyard._runtime.gpus.detection import detect, measure
found = detect()
print(json.dumps({**dataclasses.asdict(found), "use": [dataclasses.asdict(one) for one in measure(found.devices)]}))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nvml")
    fake_nvml(folder)
    return folder


def python(library: Path, *arguments: str, **variables: str) -> str:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), **variables}
    return subprocess.run(
        [sys.executable, *arguments], check=True, capture_output=True, text=True, env=environment
    ).stdout


def detected(library: Path, **variables: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(python(library, "-c", _PROGRAM, **variables))
    return found


def test_whole_gpus_with_their_use(library: Path) -> None:
    found = detected(library, FAKE_GPUS=TWO_GPUS)
    assert found["checked"]
    assert [(one["index"], one["uuid"], one["model"], one["memory_bytes"]) for one in found["devices"]] == [
        (0, "GPU-aaaa-1", "NVIDIA A100", 40 << 30),
        (1, "GPU-bbbb-2", "NVIDIA A100", 40 << 30),
    ]
    assert found["use"] == [
        {"uuid": "GPU-aaaa-1", "memory_used_bytes": 1 << 30, "utilization": 0.37},
        {"uuid": "GPU-bbbb-2", "memory_used_bytes": 512 << 20, "utilization": 0.05},
    ]


def test_a_gpu_in_mig_mode_is_its_instances(library: Path) -> None:
    found = detected(library, FAKE_GPUS="GPU-a,A100,40960,0,0,MIG-x,-,MIG-y;GPU-b,A100,40960,0,0,-;GPU-c,L4,24576,0,9")
    assert [(one["index"], one["uuid"], one["parent"], one["alias"]) for one in found["devices"]] == [
        (0, "MIG-x", "GPU-a", "MIG-GPU-a/7/0"),
        (0, "MIG-y", "GPU-a", "MIG-GPU-a/9/0"),
        (2, "GPU-c", "", ""),
    ]
    assert found["devices"][0]["model"] == "A100 MIG 1g.5gb"
    assert [one["utilization"] for one in found["use"]] == [None, None, 0.09]
    assert found["use"][0]["memory_used_bytes"] == 1 << 30
    (problem,) = found["problems"]
    assert problem.startswith("GPU 1 is in MIG mode and has no MIG instance")


def test_a_gpu_that_fails_does_not_hide_the_others(library: Path) -> None:
    found = detected(library, FAKE_GPUS="GPU-a,lost,0,0,0;GPU-b,L4,24576,0,0")
    assert [one["uuid"] for one in found["devices"]] == ["GPU-b"]
    assert found["problems"] == ["GPU 0 cannot be used: GPU is lost"]


def test_a_computer_without_gpus_and_one_whose_driver_fails(library: Path) -> None:
    absent = detected(library, FAKE_NVML_ERROR="12")  # NVML_ERROR_LIBRARY_NOT_FOUND
    assert (absent["devices"], absent["checked"]) == ([], False)
    assert detected(library, FAKE_GPUS="")["devices"] == []
    broken = detected(library, FAKE_NVML_ERROR="18")  # NVML_ERROR_LIB_RM_VERSION_MISMATCH
    assert "NVML, the library of NVIDIA's driver, fails: " in broken["problems"][0]


def test_doctor_lists_them(library: Path) -> None:
    out = python(
        library,
        *("-m", "hopyard.cli.main", "doctor", "--quick", "--json"),
        FAKE_GPUS=TWO_GPUS,
        CUDA_VISIBLE_DEVICES="1",
    )
    (finding,) = [one for one in json.loads(out)["findings"] if one["name"] == "gpus"]
    assert finding["detail"] == (
        "2: 0 NVIDIA A100, 40.0 GiB; 1 NVIDIA A100, 40.0 GiB; CUDA_VISIBLE_DEVICES=1 shows 1 of them"
    )
