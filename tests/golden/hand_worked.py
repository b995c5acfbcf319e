"""Tests with schedules computed by hand: their names and results."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.golden import product
from tests.golden.canonical import dump
from tests.golden.case import Case, Part
from tests.golden.names import REPOSITORY

ROLES: Final = ("hand_worked", "by_hand")

_LEFT_OUT: Final = "not onformance and not hash_order"
"""Suites that test every policy in the same way: they have no schedules."""

_OPTIONS: Final = (
    *("-q", "-p", "no:cacheprovider", "--noconftest", "-k", _LEFT_OUT),
    *("--hypothesis-profile=ci", "-o", "addopts=", "-o", "filterwarnings=", "-o", "junit_family=xunit1"),
)
"""The tiers and other plugins of the test suite do not select the tests."""

_ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def units() -> list[str]:
    """Return one unit: all tests run in one process."""
    return ["tests"]


def cases(unit: str) -> Iterator[Case]:
    """Run the tests; yield a case for each file, with a step for each test."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        paths = [str(product.NAMES.path(role)) for role in ROLES]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *_OPTIONS, f"--junitxml={report}", *paths],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **_ONE_THREAD},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 1) or not report.exists():
            raise RuntimeError(f"pytest exited with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        tests = list(ElementTree.parse(report).iter("testcase"))
    files: dict[str, list[str]] = {}
    for test in tests:
        file, suite = _place(test)
        name = f"{suite}{test.get('name')}"
        result = next((child.tag for child in test if child.tag in ("failure", "error", "skipped")), "passed")
        files.setdefault(file, []).append(dump({"name": name, "result": result}))
    for file in sorted(files):
        yield Case(file, sorted(files[file]))


def _place(test: ElementTree.Element) -> tuple[str, str]:
    """Return the file name of a test without folders, so that a moved file stays the same, and the class of the test."""
    module = test.get("file", "").removesuffix(".py")
    file = module.rpartition("/")[2]
    suite = test.get("classname", "").removeprefix(module.replace("/", ".")).removeprefix(".")
    return file, f"{suite}." if suite else ""


PART: Final = Part("hand_worked", "the tests of manually computed schedules", units, cases)
