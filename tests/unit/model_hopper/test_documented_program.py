"""Test that the program in docs/hopping.md trains, hops and is evaluated."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from tests.unit.model_hopper.programs import tour, visit

PAGE = (Path(__file__).parents[3] / "docs" / "hopping.md").read_text()
CONFIG = {"width": 8, "lr": 0.1, "batch_size": 16}


def test_it_trains_hops_and_is_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file := tmp_path / "documented_hops.py").write_text(PAGE.partition("```python\n")[2].partition("```")[0])
    monkeypatch.syspath_prepend(str(tmp_path))
    program = importlib.import_module(file.stem).TRAINER
    rng, parts = np.random.default_rng(0), [tmp_path / f"part{number}.npz" for number in range(2)]
    for part in parts:
        np.savez(part, x=rng.normal(size=(40, 196)).astype(np.float32), y=rng.integers(0, 10, 40))
    reports = tour(program, CONFIG, parts, tmp_path)
    assert [report.position for report in reports] == [1, 2]
    last = tmp_path / "snapshot-1"
    assert visit(program, CONFIG, parts[0], tmp_path, snapshot=last, mode="evaluate").examples == 40
