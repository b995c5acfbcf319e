"""Tests that a sequence whose values overflow before the end of the training is an error of the file."""

from __future__ import annotations

import pytest

from hopyard.spec import SpecError, canonical_json, load_spec, spec_from_json

pytestmark = pytest.mark.quick

FILE = """name: x
command: [a]
metric: {{name: m, mode: max}}
space: {space}
stop: {{jobs: 1, max_iterations: {stop}}}
"""


@pytest.mark.parametrize(
    ("space", "at"),
    [
        ("{lr: {sequence: {exponential: {initial: 1, gamma: 1.0e+300}}}}", 9),
        ("{lr: {constant: {sequence: {step: {initial: 1, step_size: 2, gamma: 1.0e+100}}}}}", 9),
        ("{lr: {choice: [1, {sequence: {exponential: {initial: 1, gamma: 1.0e+300}}, per: 3}]}}", 9),
        ("{g: {space: {lr: {sequence: {exponential: {initial: 1, gamma: {uniform: [1, 1.0e+60]}}}}}}}", 9),
        ("{lr: {sequence: {exponential: {initial: 1, gamma: {choice: [1, 1.0e+60, 2]}}}}}", 9),
        ("{lr: {sequence: {chain: {sequences: [{exponential: {initial: 1, gamma: 1.0e+300}}, 1], milestones: [4]}}}}", 3),
    ],
)  # fmt: skip
def test_what_overflows_in_the_training_is_told_before_it(space: str, at: int) -> None:
    with pytest.raises(
        SpecError, match=rf"lr: .*beyond what a double can hold at position {at}, before max_iterations"
    ):
        load_spec(FILE.format(space=space, stop=10))
    load_spec(FILE.format(space=space, stop=1))


def test_what_was_accepted_once_is_read_again() -> None:
    space = "{lr: {sequence: {exponential: {initial: 1, gamma: 1.0e+300}}}}"
    accepted = canonical_json(load_spec(FILE.format(space=space, stop=1)))
    text = accepted.replace('"max_iterations":1,', '"max_iterations":10,')
    assert spec_from_json(text).stop.max_iterations == 10


def test_a_long_training_is_read_at_once() -> None:
    space = "{lr: {sequence: {step: {initial: 1, step_size: 2, gamma: 0.9}}}}"
    assert load_spec(FILE.format(space=space, stop=2**31 - 2)).stop.max_iterations == 2**31 - 2


@pytest.mark.parametrize("field", ["jobs", "max_iterations"])
def test_numbers_that_mean_no_limit_are_refused(field: str) -> None:
    text = FILE.format(space="{lr: 1}", stop=1).replace(f"{field}: 1", f"{field}: 2147483647")
    with pytest.raises(SpecError, match=rf"stop\.{field}: needs a number < 2147483647, found 2147483647"):
        load_spec(text)
