"""Tests of scripts without a cluster: the same calls and checks without an agent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hopyard
from hopyard import script

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the variables of a cluster from the environment, and resets the position of the last report."""
    for name in ("HOPYARD_TOKEN", "HOPYARD_SPEAKER", "HOPYARD_HYPERPARAMETERS", "HOPYARD_SEED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(script, "_alone_at", 0)


def test_a_report_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    hopyard.report(accuracy=0.5)
    hopyard.report({"val/loss": float("nan")}, accuracy=1, position=7)
    hopyard.report()
    assert capsys.readouterr().out == "position 1: accuracy=0.5\nposition 7: val/loss=nan accuracy=1\nposition 8: \n"


@pytest.mark.merge
def test_a_metric_may_be_a_tensor_of_one_number(capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    hopyard.report({"val/loss": np.array([0.25])}, accuracy=torch.tensor(0.5), steps=torch.tensor([[3]]))
    hopyard.Trial(metric="accuracy").report(torch.tensor(0.5, requires_grad=True))
    expected = "position 1: val/loss=0.25 accuracy=0.5 steps=3\nposition 2: accuracy=0.5\n"
    assert capsys.readouterr().out == expected
    for value in (torch.tensor([0.5, 0.5]), torch.tensor(True), torch.tensor(1j)):
        with pytest.raises(
            ValueError, match=r"metric 'x' is tensor.*\(Tensor\); allowed: a float; take the number out"
        ):
            hopyard.report(x=value)


def test_it_checks_as_a_cluster_does() -> None:
    with pytest.raises(ValueError, match=r"metric 'x' is True \(bool\); allowed: a float"):
        hopyard.report(x=True)
    hopyard.report(position=3)
    with pytest.raises(ValueError, match="position is 3; allowed: a whole number above the last one's, 3"):
        hopyard.report(position=3)
    with pytest.raises(ValueError, match=r"position is 1\.5; allowed"):
        hopyard.report(position=1.5)  # type: ignore[arg-type]  # what the test is about
    with pytest.raises(ValueError, match=r"position is 2147483648; allowed: .* and at most 2147483647"):
        hopyard.report(position=2**31)


def test_a_checkpoint_is_a_file_or_a_folder(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for odd in (tmp_path / "none", tmp_path / "pipe", ""):
        with pytest.raises(ValueError, match=r"checkpoint .* allowed: a file or a folder"):
            hopyard.report(checkpoint=odd)


def test_values_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (hopyard.hyperparameters(), hopyard.seed(), hopyard.checkpoint()) == ({}, 0, None)
    monkeypatch.setenv("HOPYARD_HYPERPARAMETERS", '{"lr": 0.1}')
    monkeypatch.setenv("HOPYARD_SEED", "5")
    assert (hopyard.hyperparameters(), hopyard.seed()) == ({"lr": 0.1}, 5)
    monkeypatch.setenv("HOPYARD_HYPERPARAMETERS", "[1]")
    monkeypatch.setenv("HOPYARD_SEED", "x")
    with pytest.raises(ValueError, match="needs a JSON object"):
        hopyard.hyperparameters()
    with pytest.raises(ValueError, match="HOPYARD_SEED needs a whole number, found 'x'"):
        hopyard.seed()
    monkeypatch.setenv("HOPYARD_HYPERPARAMETERS", "{")
    with pytest.raises(ValueError, match="HOPYARD_HYPERPARAMETERS is no JSON"):
        hopyard.hyperparameters()


@pytest.mark.merge
def test_alone_it_needs_neither_grpc_nor_pydantic() -> None:
    code = "import sys, hopyard; hopyard.report(x=1); print([m for m in ('grpc', 'pydantic', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
