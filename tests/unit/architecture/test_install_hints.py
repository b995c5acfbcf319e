"""Test that no text of the project tells a user to install `hopyard` from the public index, which has another package of that name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.quick

ROOT: Final = Path(__file__).parents[3]
FOLDERS: Final = (
    "benchmarks",
    "deploy",
    "docs",
    "examples",
    "policies",
    "protos",
    "scripts",
    "sdk",
    "services",
    "tests",
)
SUFFIXES: Final = {".cfg", ".cpp", ".h", ".ipynb", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml", ""}

BARE: Final = re.compile(r"""\bpip3?\s+install\s(?:[^\n`;|&:]*?[\s'"\\])??['"\\]*hopyard(?=[\[\s'"`\\.,;)]|$)""")
"""A command that installs `hopyard` or `hopyard[EXTRA]` by its name and not by a path such as `./hopyard`."""


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("pip install hopyard", True),
        ("pip install 'hopyard[all]'", True),
        ("`pip3 install --upgrade torch 'hopyard[all]'`", True),
        ('"pip install \\"hopyard[plot]\\""', True),
        ("pip install './hopyard[all]' scikit-learn", False),
        ("pip install ../hopyard", False),
        ("pip install torch: hopyard needs it", False),
        ("pip install hopyard_policies", False),
        ("run `pip install torch`; hopyard uses it", False),
    ],
)
def test_the_search_finds_names_and_no_paths(text: str, bare: bool) -> None:
    assert (BARE.search(text) is not None) is bare


def test_no_text_installs_hopyard_from_the_public_index() -> None:
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*")) if file.suffix in SUFFIXES]
    files += [file for file in sorted(ROOT.iterdir()) if file.suffix in SUFFIXES]
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in files
        if file.is_file() and file != Path(__file__) and "__pycache__" not in file.parts
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if "pip" in line and BARE.search(line)
    ]
    assert found == []
