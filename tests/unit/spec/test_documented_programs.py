"""Tests that the experiment files in docs/programs.md are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hopyard.spec import load_spec

pytestmark = pytest.mark.quick

TEXT = (Path(__file__).parents[3] / "docs" / "programs.md").read_text()
FILES = re.findall(r"^```yaml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_there_is_one_of_each_kind() -> None:
    assert [load_spec(file).program for file in FILES] == ["command", "log", "command"]


@pytest.mark.parametrize("file", FILES)
def test_it_can_be_read(file: str) -> None:
    assert load_spec(file).metric.name == "accuracy"
