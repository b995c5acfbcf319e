"""Tests of the hints on the next command to use."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard.cli.commands.experiments.hints import next_step, unused_note
from hopyard.client.types import Experiment, ExperimentState, Metric
from hopyard.spec import load_spec

pytestmark = pytest.mark.quick

S = ExperimentState


@pytest.mark.parametrize(
    ("state", "rests", "extended", "expected"),
    [
        (S.RUNNING, False, True, ""),
        (S.RUNNING, True, True, "no cluster runs in d to train it: hopyard resume e1 --data d"),
        (S.PAUSED, False, True, "it stays paused until: hopyard resume e1 --data d"),
        (S.PAUSING, True, False, "no cluster runs in d to train it: hopyard resume e1 --data d"),
        (S.ENDING, False, True, "it is ending; the change takes effect after its end"),
        (S.STOPPED, True, True, "the extension leaves nothing to train; add jobs: hopyard extend e1 --jobs N --data d"),
        (S.FAILED, False, False, "it has ended; to continue it: hopyard extend e1 --data d"),
    ],
)
def test_next_step(state: ExperimentState, rests: bool, extended: bool, expected: str) -> None:
    experiment = Experiment("e1", "digits", state, Metric("accuracy"))
    assert next_step(experiment, Path("d") if rests else None, " --data d", extended=extended) == expected


@pytest.mark.parametrize(
    ("program", "left_out"),
    [
        ("command: [python, train.py, '{lr}', '--depth={model.depth}', '{units}']", ""),
        ("command: [python, train.py, '{lr}', '{{units}}']", "{model.depth}, {units}"),
        ("log: {command: [./fit, '{lr}', '{model.depth}'], metrics: 'acc=(.+)'}", "{units}"),
        ("command: [python, train.py]", ""),
        ("trainer: train.py:Mine", ""),
    ],
    ids=["all used", "some", "log", "it asks for them itself", "trainer"],
)
def test_a_searched_value_that_the_command_leaves_out_is_noted(program: str, left_out: str) -> None:
    spec = load_spec(
        f"name: a\n{program}\n"
        "metric: {name: accuracy, mode: max}\n"
        "space: {lr: {uniform: [0, 1]}, model: {space: {depth: {int: [1, 2]}}}, units: {choice: [16, 32]}}\n"
        "stop: {jobs: 1, max_iterations: 1}\n"
    )
    note = unused_note(spec)
    assert (f"the command does not use {left_out} of the space:" in note) if left_out else note == ""
