"""Tests of the commands that install extras."""

from __future__ import annotations

import json
from importlib.metadata import Distribution
from os import PathLike
from pathlib import Path

import pytest

from hopyard._common.extras import install_command

pytestmark = pytest.mark.quick

UNKNOWN = "pip install './hopyard[plot]', where ./hopyard is a checkout"


def give_metadata(monkeypatch: pytest.MonkeyPatch, direct_url: str | None) -> None:
    """Make `direct_url` the text of the `direct_url.json` of each distribution.

    The class of a distribution that the finders return is not that of the standard library once a package has imported
    `importlib_metadata`, so that the lookup is replaced, not a method of the class.
    """

    class Given(Distribution):
        def read_text(self, filename: str) -> str | None:
            return direct_url if filename == "direct_url.json" else None

        def locate_file(self, path: str | PathLike[str]) -> Path:
            return Path(path)

    monkeypatch.setattr(Distribution, "from_name", lambda name: Given())


@pytest.mark.parametrize(
    ("directory", "command"),
    [({"editable": True}, "pip install -e '{source}[plot]'"), ({}, "pip install '{source}[plot]'")],
)
def test_the_command_names_the_source_of_the_installation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, directory: dict[str, bool], command: str
) -> None:
    source = tmp_path / "my source"
    direct = {"url": source.as_uri(), "dir_info": directory}
    give_metadata(monkeypatch, json.dumps(direct))
    assert install_command("plot", requirements=[]) == UNKNOWN
    source.mkdir()
    (source / "pyproject.toml").touch()
    assert install_command("plot", requirements=[]) == command.format(source=source)


@pytest.mark.parametrize(
    "text", [None, '{"url": "https://example.org/hopyard.git"}', '{"url": "file:///nowhere"}', "{"]
)
def test_without_a_local_source_the_command_needs_a_checkout(monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    give_metadata(monkeypatch, text)
    assert install_command("plot", requirements=[]) == UNKNOWN
