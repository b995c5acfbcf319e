"""Test of docs/cpp.md: its programs are built with the installed library and run as the page says."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cpp import Programs, cmake
from tests.docs.pages import ROOT, read_page

pytestmark = pytest.mark.timeout(600)


def test_the_programs_of_the_page(cpp: Programs, tmp_path: Path) -> None:
    page = "docs/cpp.md"
    blocks = read_page((ROOT / page).read_text(), page)
    for block in blocks:
        if block.file:
            (tmp_path / block.file).write_text(block.text)
    (own_loop,) = (block.text for block in blocks if block.language == "cpp" and not block.file)
    (tmp_path / "loop.cc").write_text(own_loop)
    with (tmp_path / "CMakeLists.txt").open("a") as file:
        file.write("add_executable(loop loop.cc)\ntarget_link_libraries(loop PRIVATE Hopyard::hopyard)\n")
    cmake("-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={cpp.installed}")
    cmake("--build", tmp_path / "build")

    said = ran(tmp_path, "build/walk", "--hopyard-until=5", "--hopyard-verify-resume")
    assert [line.split(":")[0] for line in said] == [f"position {n}" for n in range(1, 6)]
    assert ran(tmp_path, "build/walk", "--hopyard-until=5") == said
    assert ran(tmp_path, "build/walk", "--hopyard-until=1", step=1e300)[0].startswith("position 1: distance=")


def ran(folder: Path, *command: str, step: float = 0.5) -> list[str]:
    """Run a program of the page without a cluster and return the lines that it prints."""
    variables = {"HOPYARD_HYPERPARAMETERS": json.dumps({"step": step}), "HOPYARD_SEED": "3"}
    done = subprocess.run(
        command, cwd=folder, env=os.environ | variables, capture_output=True, text=True, check=False, timeout=150
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
