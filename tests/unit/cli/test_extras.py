"""Tests of the commands that install extras."""

from __future__ import annotations

import json
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from hopyard._common.extras import install_command

pytestmark = pytest.mark.quick

UNKNOWN = "pip install './hopyard[plot]', where ./hopyard is a checkout"


@pytest.mark.parametrize(
    ("directory", "command"),
    [({"editable": True}, "pip install -e '{source}[plot]'"), ({}, "pip install '{source}[plot]'")],
)
def test_the_command_names_the_source_of_the_installation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, directory: dict[str, bool], command: str
) -> None:
    source = tmp_path / "my source"
    direct = {"url": source.as_uri(), "dir_info": directory}
    monkeypatch.setattr(PathDistribution, "read_text", lambda self, name: json.dumps(direct))
    assert install_command("plot", requirements=[]) == UNKNOWN
    source.mkdir()
    (source / "pyproject.toml").touch()
    assert install_command("plot", requirements=[]) == command.format(source=source)


@pytest.mark.parametrize(
    "text", [None, '{"url": "https://example.org/hopyard.git"}', '{"url": "file:///nowhere"}', "{"]
)
def test_without_a_local_source_the_command_needs_a_checkout(monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    monkeypatch.setattr(PathDistribution, "read_text", lambda self, name: text)
    assert install_command("plot", requirements=[]) == UNKNOWN
