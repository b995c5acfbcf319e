"""Tests of the commands and options that are suggested for those of other tools."""

from __future__ import annotations

import pytest

from hopyard.cli.main import run
from hopyard.cli.suggestions import MEANT_COMMANDS, MEANT_OPTIONS
from tests.unit.cli.test_help import commands, leaves


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def test_no_command_or_option_is_taken_for_another_one() -> None:
    known = commands()
    assert not MEANT_COMMANDS.keys() & known.keys()
    for meant in MEANT_COMMANDS.values():
        for suggestion in meant.split(", "):
            program, name, *rest = suggestion.split()
            assert program == "hopyard"
            if name.startswith("--"):
                continue
            assert name in known, suggestion
            options = {option for parameter in known[name].params for option in parameter.opts}
            assert {word for word in rest if word.startswith("-")} <= options, suggestion
    there = {option for command in leaves().values() for parameter in command.params for option in parameter.opts}
    assert {option for meant in MEANT_OPTIONS.values() for option in meant} <= there


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("status", "hopyard experiments, hopyard jobs"),
        ("UI", "hopyard jobs --watch, hopyard nodes --watch"),
        ("delete", "hopyard rm"),
        ("kill", "hopyard stop"),
        ("serve", "hopyard up"),
        ("version", "hopyard --version"),
    ],
)
def test_an_unknown_command_suggests_what_it_means(word: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([word]) == 2
    assert f"No such command '{word}'. Did you mean: {meant}?" in capsys.readouterr().err


def test_other_unknown_commands_are_suggested_by_spelling(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["jbos"]) == 2
    assert "No such command 'jbos'. Did you mean 'jobs'?" in capsys.readouterr().err
    assert run(["xyz"]) == 2
    assert "Did you mean" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "x.yaml", "--workers", "3"], "No such option: --workers (Possible options: --slots)"),
        (["run", "x.yaml", "--gpu", "3"], "No such option: --gpu (Possible options: --gpus)"),
        (["run", "x.yaml", "--directory", "y"], "No such option: --directory (Possible options: --data, --folder)"),
        (["jobs", "--directory", "y"], "No such option: --directory (Possible options: --data)"),
        (["agent", "--workers", "3"], "No such option: --workers (Possible options: --slots)"),
        (["data", "list", "--address", "x"], "No such option: --address (Possible options: --server)"),
        (["jobs", "--workers", "3"], "No such option: --workers "),
    ],
)
def test_an_unknown_option_suggests_those_of_the_command(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert expected in capsys.readouterr().err
