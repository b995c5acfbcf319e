"""Tests of hyperparameters in a command's arguments, and of the other fields of programs."""

from __future__ import annotations

import pytest

from hopyard._common.command_template import PlaceholderError, filled, problems
from hopyard.spec import SpecError, canonical_json, load_spec, spec_from_json

pytestmark = pytest.mark.quick

VALUES = {
    "lr": 1e-05,
    "units": 32,
    "act": "re lu",
    "deep": True,
    "sizes": [1, 2],
    "none": None,
    "model": {"depth": 3, "head": {"width": 8}},
}

FILE = """\
name: e
{program}
metric: {{name: acc, mode: max}}
space: {{lr: {{uniform: [0, 1]}}, units: {{choice: [1, 2]}}}}
stop: {{jobs: 3}}
"""


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("{lr}", "1e-05"),
        ("--units={units}", "--units=32"),
        ("{act}", "re lu"),
        ("{deep}{none}", "truenull"),
        ("{sizes}", "[1, 2]"),
        ("{model.depth}/{model.head.width}", "3/8"),
        ("{{lr}}", "{lr}"),
        ('{{"lr": {lr}}}', '{"lr": 1e-05}'),
        ("{{{units}}}", "{32}"),
        ("a } b", "a } b"),
        ("", ""),
    ],
)
def test_values_stand_in_their_place(argument: str, expected: str) -> None:
    assert filled(["x", argument], VALUES) == ["x", expected]


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("{print $1}", "found {print $1}; allowed: the space's names in braces (lr, units), and {{ and }} for braces"),
        ("{}", "found {}; allowed: the space's names"),
        ("a {lr", "needs a } behind {lr; write {{ for a brace"),
    ],
)
def test_what_names_nothing_is_told_with_the_names(argument: str, message: str) -> None:
    ((index, found),) = problems(["x", "{lr}", argument], ["lr", "units"])
    assert index == 2
    assert found.startswith(message)


def test_an_argument_with_a_parameter_that_the_job_does_not_have_is_left_out() -> None:
    arguments = ["x", "--momentum={momentum}", "--{model.width}{lr}", "{lr}"]
    assert filled(arguments, VALUES) == ["x", "1e-05"]


def test_the_program_itself_is_not_left_out() -> None:
    with pytest.raises(PlaceholderError, match=r"the program itself needs \{momentum\}"):
        filled(["{momentum}", "x"], VALUES)


def test_a_value_that_no_program_can_be_given_is_told() -> None:
    with pytest.raises(PlaceholderError, match=r"act is 're\\x00lu'; allowed in an argument: text without NUL"):
        filled(["x", "--act={act}"], {"act": "re\0lu"})


def test_a_brace_that_is_not_closed_is_told() -> None:
    with pytest.raises(PlaceholderError, match=r"needs a \} behind \{lr"):
        filled(["a {lr"], VALUES)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            'command: [train, "{depth}"]',
            "f.yaml:2: command[1]: found {depth}; allowed: the space's names in braces (lr, units)",
        ),
        ("log: {command: [awk, '{print}'], metrics: 'acc=(.*)'}", "f.yaml:2: log.command[1]: found {print}; allowed"),
        (
            "log: {command: [a], metrics: '(acc)=(.*)'}",
            "f.yaml:2: log.metrics.acc: needs exactly one group, around the number",
        ),
        (
            "log: {command: [a], metrics: '(?P<a>.)=(?P<b>.*)'}",
            "f.yaml:2: log.metrics.acc: needs exactly one group, around the number",
        ),
        ("command: ['', a]", 'f.yaml:2: command[0]: needs a program, found ""'),
        ('command: [a, "b\\0c"]', "f.yaml:2: command[1]: needs text that a program can be given, without NUL"),
        ("command: [a]\nenvironment: {HOPYARD_X: y}", "f.yaml:3: environment.HOPYARD_X: names that begin"),
        ("command: [a]\nenvironment: {A-B: y}", "f.yaml:3: environment.A-B: needs letters"),
        ('command: [a]\nenvironment: {A: "b\\0c"}', "f.yaml:3: environment.A: needs text that a program can be given"),
        (
            "command: [a]\nenvironment: {A: 1}",
            "f.yaml:3: environment.A: needs text, found 1 (quote it to make it text)",
        ),
        ("command: [a]\ninherit_environment: [A, HOPYARD_X]", "f.yaml:3: inherit_environment[1]: names that begin"),
        ("command: [a]\ninherit_environment: [A=b]", "f.yaml:3: inherit_environment[0]: needs letters"),
        (
            "command: [a]\nenvironment: {A: b}\ninherit_environment: [B, A]",
            "f.yaml:4: inherit_environment[1]: found A, which environment sets; allowed: one of them",
        ),
        (
            "command: [a]\nworking_directory: ../x",
            "f.yaml:3: working_directory: needs a folder inside the experiment's code",
        ),
        ("command: [a]\ninterpreter: ''", 'f.yaml:3: interpreter: needs a path, found ""'),
    ],
)
def test_mistakes_name_their_place(program: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_spec(FILE.format(program=program), "f.yaml")
    assert str(caught.value).startswith(message)


def test_the_names_of_inherited_variables_are_listed_once() -> None:
    spec = load_spec(FILE.format(program="command: [a]\ninherit_environment: [B, A, B]"))
    assert spec.inherit_environment == ("B", "A")
    assert spec_from_json(canonical_json(spec)) == spec
    assert load_spec(FILE.format(program="command: [a]\ninherit_environment: B")).inherit_environment == ("B",)


def test_the_fields_of_programs_survive_the_canonical_form() -> None:
    program = 'command: [python, t.py, "{lr}", "{{x}}"]\ninterpreter: /v\nenvironment: {B: "2", A: "1"}\nworking_directory: src/a'
    spec = load_spec(FILE.format(program=program))
    assert (spec.interpreter, spec.environment, spec.working_directory) == ("/v", {"A": "1", "B": "2"}, "src/a")
    assert spec_from_json(canonical_json(spec)) == spec
    assert spec.stop.max_iterations is None
