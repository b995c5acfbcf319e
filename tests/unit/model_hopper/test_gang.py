"""Test that an epoch on a gang, each rank on its partition, equals one training on batches of all partitions."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from hopyard.torch.state_io import read_state
from tests.ports import free_port
from tests.timing import HANG_SECONDS
from tests.unit.model_hopper.gang_ranks import CONFIG, PROGRAM, SIZE, learn, model_fn
from tests.unit.model_hopper.programs import partition, visit
from tests.unit.trainer.test_torch_gang import ROOT

COUNTS = (41, 5)  # the second rank has no examples in some batches


def whole_batches(parts: list[Path]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the batches of both partitions together, with the partitions spread evenly; the last one contains a short rest, too."""
    data = [np.load(part) for part in parts]
    order = sorted(
        (Fraction(2 * number + 1, 2 * count), rank, number)
        for rank, count in enumerate(COUNTS)
        for number in range(count)
    )
    cuts = [order[first : first + SIZE] for first in range(0, len(order), SIZE)]
    if len(cuts[-1]) < 2 * len(COUNTS):
        cuts[-2:] = [cuts[-2] + cuts[-1]]
    return [
        (
            np.stack([data[rank]["x"][number] for _, rank, number in cut]),
            np.stack([data[rank]["y"][number] for _, rank, number in cut]),
        )
        for cut in cuts
    ]


def flat(snapshot: Path) -> torch.Tensor:
    state = read_state(snapshot / "state" / "model" / "torch.pt")
    return torch.cat([tensor.flatten() for tensor in state["model"].values()])


def test_a_gang_learns_what_one_process_learns_and_its_snapshot_hops_on(tmp_path: Path) -> None:
    parts = [partition(tmp_path / f"part{rank}.npz", count, rank) for rank, count in enumerate(COUNTS)]
    visit(PROGRAM, CONFIG, parts[0], tmp_path, save=tmp_path / "before")
    command = [sys.executable, "-m", "tests.unit.model_hopper.gang_ranks", str(tmp_path)]
    port = str(free_port())
    ranks = [subprocess.Popen([*command, str(rank), port], cwd=ROOT) for rank in range(2)]
    try:
        assert [rank.wait(timeout=HANG_SECONDS) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()

    model, optimizer = model_fn(CONFIG)
    saved = read_state(tmp_path / "before" / "state" / "model" / "torch.pt")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"][""])
    for x, y in whole_batches(parts):
        learn(model, optimizer, x, y)
    expected = torch.cat([one.detach().flatten() for one in model.parameters()])
    assert torch.allclose(flat(tmp_path / "after"), expected, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(flat(tmp_path / "before"), expected, rtol=1e-2)

    position, metrics = json.loads((tmp_path / "report.json").read_text())
    x, y = (np.concatenate([np.load(part)[name] for part in parts]) for name in ("x", "y"))
    right = (model(torch.as_tensor(x)).argmax(1) == torch.as_tensor(y)).double().mean().item()
    assert (position, metrics) == (3, pytest.approx({"accuracy": right}))

    report = visit(PROGRAM, CONFIG, parts[1], tmp_path, snapshot=tmp_path / "after", save=tmp_path / "then")
    assert report.position == 4
    for first in range(0, COUNTS[1], SIZE):
        data = np.load(parts[1])
        learn(model, optimizer, data["x"][first : first + SIZE], data["y"][first : first + SIZE])
    expected = torch.cat([one.detach().flatten() for one in model.parameters()])
    assert torch.allclose(flat(tmp_path / "then"), expected, rtol=1e-4, atol=1e-6)
