"""Test of `benchmarks/traces/record.py`, which records traces on a cluster that it starts."""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from hopyard.spec import load_spec
from hopyard.traces import Trace, read_traces

FOLDER = Path(__file__).parents[2] / "benchmarks" / "traces"


def record(*arguments: object, where: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, str(FOLDER / "record.py"), *map(str, arguments)]
    return subprocess.run(
        call, cwd=where, capture_output=True, text=True, check=False, env=os.environ | environment, timeout=150
    )


@pytest.fixture
def recipe() -> ModuleType:
    spec = importlib.util.spec_from_file_location("record", FOLDER / "record.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_agents_are_recorded(tmp_path: Path) -> None:
    for package, extra in (("torch", "torch"), ("Box2D", "lunarlander")):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install './hopyard[{extra}]'")
    done = record("lunarlander", "--jobs", 2, "--epochs", 1, "-o", "new.jsonl.gz", where=tmp_path)
    assert done.returncode == 0, done.stderr
    spec = load_spec((FOLDER / "lunarlander" / "experiment.yaml").read_text())
    traces = read_traces(tmp_path / "new.jsonl.gz")
    assert [trace.hyperparameters for trace in traces] == [
        spec.space.sample_at(spec.generator.seed, ordinal) for ordinal in range(2)
    ]
    for trace in traces:
        assert len(trace.metrics) == 1
        assert -1000 < trace.metrics[0] < 0
        assert trace.others["episodes"][0] >= 1
    assert done.stdout.splitlines()[-1].startswith("new.jsonl.gz: 2 jobs, 2 reports, ")


def test_without_the_images_it_says_what_to_install(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install './hopyard[torch]'")
    done = record("fashion", where=tmp_path, FASHION_MNIST=str(tmp_path / "none"))
    assert done.returncode == 1
    assert "dataset-fashion-mnist" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_a_package_it_names_the_extra(recipe: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe, "find_spec", lambda module: None if module == "Box2D" else module)
    assert recipe.missing("lunarlander") == "packages are missing: pip install './hopyard[lunarlander]'"


def test_fewer_digits_are_kept(recipe: ModuleType) -> None:
    trace = Trace(
        "1", {}, "return", "max", (-1.23456789, math.nan), (0.123456789, 1.0), others={"loss": (12345.678, math.nan)}
    )
    made = recipe.compact(trace)
    assert made == replace(
        trace, metrics=(-1.234568, math.nan), seconds=(0.123457, 1.0), others={"loss": (12345.7, math.nan)}
    )
