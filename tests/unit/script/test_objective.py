"""The program that calls an objective function, without a cluster."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hopyard import Trial, script
from hopyard.script.objective import main, returned_metrics

pytestmark = pytest.mark.quick

CODE = """
import hopyard

def value(trial):
    return 2 * trial["lr"]

def mapping(config):
    return {"loss": config["lr"], "size": 3}

def curve(trial):
    for epoch in range(3):
        trial.report(epoch, extra=1)
    return epoch

def better(trial):
    trial.report(1.0)
    return 0.5

def last(trial):
    trial.report(extra=1.0)
    return 0.5

def silent(trial):
    pass

def other(trial):
    return {"accuracy": 1.0}

def text(trial):
    return "good"

def classic(config):
    hopyard.report(loss=config["lr"])

def broken(trial):
    return trial["missing"]
"""


@pytest.fixture(autouse=True)
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "code_for_test.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("HOPYARD_HYPERPARAMETERS", '{"lr": 0.25}')
    monkeypatch.setattr(script, "_alone_at", 0)
    monkeypatch.setattr(script, "_reported", None)
    yield
    sys.modules.pop("code_for_test", None)


@pytest.mark.parametrize(
    ("function", "printed"),
    [
        ("value", ["position 1: loss=0.5"]),
        ("mapping", ["position 1: loss=0.25 size=3"]),
        ("curve", ["position 1: loss=0 extra=1", "position 2: loss=1 extra=1", "position 3: loss=2 extra=1"]),
        ("better", ["position 1: loss=1"]),
        ("last", ["position 1: extra=1", "position 2: loss=0.5"]),
        ("classic", ["position 1: loss=0.25"]),
    ],
)
def test_a_returned_value_is_reported_unless_the_function_has_reported_it(
    function: str, printed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["code_for_test", function, "loss"])
    assert capsys.readouterr().out.splitlines() == printed


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            "silent",
            "silent() of code_for_test: it returned None and has reported nothing; allowed: return the value of loss",
        ),
        ("other", "other() of code_for_test: it returned the metrics accuracy; needed: loss"),
        ("text", "text() of code_for_test: metric 'loss' is 'good' (str); allowed: a float"),
    ],
)
def test_a_wrong_result_is_an_error_in_one_line(function: str, message: str) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["code_for_test", function, "loss"])
    assert str(raised.value).startswith(f"hopyard: {message}")


def test_an_error_of_the_function_has_the_frames_of_the_function_only(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["code_for_test", "broken", "loss"])
    assert raised.value.code == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "KeyError: 'missing'"
    assert [line for line in lines if line.startswith("  File")] == [line for line in lines if "in broken" in line]


def test_numbers_of_numpy_and_nan_count() -> None:
    assert returned_metrics(np.float32(0.5), "loss", 0, None) == {"loss": 0.5}
    assert math.isnan(returned_metrics(math.nan, "loss", 0, None)["loss"])


def test_a_job_that_continues_from_its_last_checkpoint_reports_nothing_more() -> None:
    assert returned_metrics(0.5, "loss", 3, None) == {}
    assert returned_metrics(None, "loss", 3, None) == {}


def test_a_trial_is_a_dict_with_the_functions_of_its_job(capsys: pytest.CaptureFixture[str]) -> None:
    trial = Trial({"lr": 0.1}, size=3, metric="loss")
    assert dict(**trial) == trial.hyperparameters == {"lr": 0.1, "size": 3}
    assert (trial.metric, trial.seed, trial.job, trial.checkpoint()) == ("loss", 0, "", None)
    trial.report(0.5, position=4)
    trial.report(accuracy=0.9)
    assert capsys.readouterr().out == "position 4: loss=0.5\nposition 5: accuracy=0.9\n"
    more: dict[str, Any] = {"loss": 1.0}
    with pytest.raises(ValueError, match="loss is given twice"):
        trial.report(0.5, **more)
