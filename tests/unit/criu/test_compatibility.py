"""Tests of what an image requires of the node that restores it: recorded at the dump, and named when it is missing."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from hopyard._runtime.criu import RestoreMismatchError
from hopyard._runtime.criu.compatibility import check, instructions, needs

pytestmark = pytest.mark.quick


def needed(**changes: Any) -> dict[str, Any]:
    return needs([os.getpid()], "/run/hopyard/job") | changes


def test_this_computer_has_what_this_process_needs() -> None:
    here = needed()
    assert os.path.realpath(sys.executable) in here["files"]
    check(here)


def test_files_in_the_jobs_own_folder_come_with_it() -> None:
    folder = str(Path(os.path.realpath(sys.executable)).parent)
    assert not any(file.startswith(f"{folder}/") for file in needs([os.getpid()], folder)["files"])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"format": 2}, "has format 2; this version reads 1"),
        ({"machine": "riscv64"}, "the image is of a riscv64 process"),
        ({"files": {"/opt/gone/python3": 7}}, "the process runs /opt/gone/python3, which this node does not have"),
        ({"files": {sys.executable: 7}}, r"differ on this node: .*python.* \(\d+ bytes, was 7\)"),
        ({"cpu": ["avx512_future", "sse2"]}, "this CPU lacks avx512_future"),
    ],
)
def test_what_is_missing_is_named(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(RestoreMismatchError, match=says):
        check(needed(**changes), {"sse2", *instructions()})


def test_only_what_programs_choose_by_counts(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nflags\t\t: fpu avx2 avx512f hypervisor sse4_2 fma md_clear bmi2 sha_ni\n")
    assert instructions(info) == {"avx2", "avx512f", "sse4_2", "fma", "bmi2", "sha_ni"}
