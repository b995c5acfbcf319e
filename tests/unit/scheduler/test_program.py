"""What agents get of an experiment's program."""

from __future__ import annotations

import pytest

from hopyard.spec import load_spec
from hopyard_scheduler.program import ENDLESS, Program, settings_of

FILE = """\
name: e
metric: {{name: acc, mode: max}}
space: {{lr: {{uniform: [0, 1]}}}}
stop: {{jobs: 3}}
{program}
"""


def program(text: str, interpreter: str = "") -> Program:
    return Program(load_spec(FILE.format(program=text)), "b" * 64, interpreter)


def test_a_script_gets_its_arguments_environment_and_folder() -> None:
    message = program("command: [python, '{lr}']\nenvironment: {A: b}\nworking_directory: src").to_proto()
    assert list(message.command.arguments) == ["python", "{lr}"]
    assert dict(message.environment) == {"A": "b"}
    assert message.working_directory == "src"
    assert message.bundle == "b" * 64


def test_a_log_program_knows_which_metric_ends_an_iteration() -> None:
    message = program("log: {command: [fit], metrics: {loss: 'l=(.)', acc: 'a=(.)'}}").to_proto()
    assert dict(message.log.metrics) == {"loss": "l=(.)", "acc": "a=(.)"}
    assert message.log.metric == "acc"


@pytest.mark.parametrize(
    ("named", "given", "used"),
    [
        ("", "", ""),
        ("", "/client/python", "/client/python"),
        ("interpreter: /file/python", "/client/python", "/file/python"),
        ("interpreter: env", "", "env"),
        ("interpreter: env", "/client/env", "/client/env"),
    ],
)
def test_the_files_interpreter_wins_over_the_clients(named: str, given: str, used: str) -> None:
    assert program(f"command: [a]\n{named}", given).to_proto().interpreter == used


def test_a_program_that_ends_by_itself_has_no_end_of_ours() -> None:
    assert settings_of(load_spec(FILE.format(program="command: [a]"))).max_position == ENDLESS
