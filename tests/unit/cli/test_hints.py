"""What a person is told to do next."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard.cli.hints import next_step
from hopyard.client.types import Experiment, ExperimentState, Metric

S = ExperimentState


@pytest.mark.parametrize(
    ("state", "rests", "extended", "expected"),
    [
        (S.RUNNING, False, True, ""),
        (S.RUNNING, True, True, "no cluster runs in d to train it: hopyard resume e1 --data d"),
        (S.PAUSED, False, True, "it stays paused until: hopyard resume e1 --data d"),
        (S.PAUSING, True, False, "no cluster runs in d to train it: hopyard resume e1 --data d"),
        (S.ENDING, False, True, "its end is under way; the change holds right after it"),
        (S.STOPPED, True, True, "that gave it nothing to train; more jobs do: hopyard extend e1 --jobs N --data d"),
        (S.FAILED, False, False, "it has ended, and goes on with more to do: hopyard extend e1 --data d"),
    ],
)
def test_next_step(state: ExperimentState, rests: bool, extended: bool, expected: str) -> None:
    experiment = Experiment("e1", "digits", state, Metric("accuracy"))
    assert next_step(experiment, Path("d") if rests else None, " --data d", extended=extended) == expected
