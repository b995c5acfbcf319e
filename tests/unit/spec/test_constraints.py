"""Tests of conditions and constraints in an experiment file."""

import pytest

from hopyard.spec import SpecError, canonical_json, load_spec, spec_from_json

pytestmark = pytest.mark.quick

TEXT = """\
name: nested
command: [python, train.py]
metric: {name: accuracy, mode: max}
space:
  optimizer: {choice: [sgd, adam]}
  momentum: {uniform: [0, 1], when: {optimizer: sgd}}
  model:
    space:
      depth: {int: [1, 4]}
      width: {choice: [16, 32, 64]}
    when: {optimizer: [sgd, adam]}
constraints:
  - model.depth * model.width <= 128
  - momentum < 0.9
stop: {jobs: 3}
"""


def test_a_file_with_all_of_it() -> None:
    spec = load_spec(TEXT)
    assert spec.constraints == ("model.depth * model.width <= 128", "momentum < 0.9")
    assert list(spec.search_space) == ["optimizer", "momentum", "model.depth", "model.width"]
    assert spec.space.constraints == ()
    assert not spec.search_space.contains({"optimizer": "adam", "model": {"depth": 4, "width": 64}})
    assert spec.space.contains({"optimizer": "adam", "model": {"depth": 4, "width": 64}})
    assert spec_from_json(canonical_json(spec)) == spec


def test_one_constraint_may_stand_alone() -> None:
    start = TEXT.index("constraints:")
    text = TEXT[:start] + "constraints: momentum < 0.9\nstop: {jobs: 3}\n"
    assert load_spec(text).constraints == ("momentum < 0.9",)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("when: {optimizer: sgd}", "when: {optimiser: sgd}", "f:6: space.momentum.when.optimiser: optimiser is not a "),
        (
            "when: {optimizer: sgd}",
            "when: {optimizer: rms}",
            'f:6: space.momentum.when.optimizer: "rms" is not a value',
        ),
        ("{int: [1, 4]}", "{int: [4, 1]}", "f:9: space.model.space.depth: int needs low < high, found [4, 1]"),
        (
            "momentum < 0.9",
            "momenta < 0.9",
            "f:14: constraints[1]: momenta is not a parameter of the space (did you mean",
        ),
        ("momentum < 0.9", "[1]", "f:14: constraints[1]: needs text, found [1]"),
    ],
)
def test_mistakes_are_told_with_their_line(old: str, new: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_spec(TEXT.replace(old, new), "f")
    assert str(caught.value).startswith(message)
