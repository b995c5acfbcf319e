"""Tests of the conversion of parameters without pydantic: results and errors are those of typer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from hopyard.cli.parameters import convert_directly

pytestmark = pytest.mark.quick

Value = tuple[str, object]


def _shout(given: str | None) -> str | None:
    if given == "wrong":
        raise typer.BadParameter("must not be wrong")
    return given.upper() if given else given


def _outcome(direct: bool, arguments: list[str]) -> list[Value] | str:
    """Return the type and value of each parameter that a command receives, or its error."""
    app, received = typer.Typer(), list[Value]()

    @app.command()
    def command(
        name: str,
        more: Annotated[list[str] | None, typer.Argument()] = None,
        text: Annotated[str | None, typer.Option(envvar="TEXT_FOR_TEST")] = None,
        shouted: Annotated[str | None, typer.Option(callback=_shout)] = "low",
        folder: Path | None = None,
        present: Annotated[Path | None, typer.Option(exists=True)] = None,
        count: Annotated[int, typer.Option(min=0)] = 3,
        several: Annotated[list[str] | None, typer.Option()] = None,
        flag: bool = False,
    ) -> None:
        values = (name, more, text, shouted, folder, present, count, several, flag)
        received.extend((type(value).__name__, value) for value in values)

    built: Any = typer.main.get_command(app)
    if direct:
        convert_directly(built)
    try:
        built(arguments, standalone_mode=False)
    except Exception as error:  # noqa: BLE001 - any error is compared
        return f"{type(error).__name__}: {error.format_message() if hasattr(error, 'format_message') else error}"
    return received


@pytest.mark.parametrize(
    "arguments",
    [
        ["a"],
        ["a", "b", "c"],
        ["", ""],
        [],
        ["a", "--text", "t", "--folder", "absent", "--count", "7", "--flag"],
        ["a", "--text", "", "--folder", "", "--shouted", "loud"],
        ["a", "--shouted", "wrong"],
        ["a", "--count", "-1"],
        ["a", "--count", "many"],
        ["a", "--present", "absent"],
        ["a", "--present", "."],
        ["a", "--folder", "."],
        ["a", "--several", "x", "--several", "y"],
        ["a", "--unknown"],
    ],
    ids=" ".join,
)
def test_the_results_and_errors_are_those_of_typer(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _outcome(False, arguments)
    assert _outcome(True, arguments) == expected
    monkeypatch.setenv("TEXT_FOR_TEST", "from the environment")
    assert _outcome(True, arguments) == _outcome(False, arguments)


def test_a_folder_that_is_not_readable_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    refused = _outcome(True, ["a", "--folder", str(tmp_path)])
    assert "is not readable" in refused
    assert refused == _outcome(False, ["a", "--folder", str(tmp_path)])
    assert _outcome(True, ["a", "--folder", str(tmp_path / "absent")]) == _outcome(
        False, ["a", "--folder", str(tmp_path / "absent")]
    )
