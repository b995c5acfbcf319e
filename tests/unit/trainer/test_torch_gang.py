"""Tests that a PyTorch training learns the same on one process and on several."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hopyard._runtime.runner.failures import ended_by
from hopyard.torch.gang import TorchGang
from hopyard.torch.state_io import read_state
from hopyard.trainer import GangError, TrainerContext, TrainerDriver
from hopyard.trainer.snapshot_header import STATE_FOLDER
from hopyard.v1 import common_pb2
from tests.ports import free_port
from tests.timing import HANG_SECONDS
from tests.unit.trainer.torch_gang import PER_EPOCH, Plain, train

ROOT = Path(__file__).parents[3]
STAGES = ((1, 6), (2, 3 * PER_EPOCH), (1, 27), (2, 36))
"""Each stage of the moving training: (number of ranks, until)."""


def test_a_training_that_changes_its_number_of_slots_is_the_one_on_one_slot(tmp_path: Path) -> None:
    alone, moving = tmp_path / "alone", tmp_path / "moving"
    alone.mkdir()
    moving.mkdir()
    expected = {str(position): metrics for position, metrics in train(alone, 0, 0, 1, 0, STAGES[-1][1]).items()}

    stages = [f"{number}:{size}:{free_port()}:{until}" for number, (size, until) in enumerate(STAGES)]
    command = [sys.executable, "-m", "tests.unit.trainer.torch_gang", str(moving)]
    ranks = [subprocess.Popen([*command, str(rank), *stages], cwd=ROOT) for rank in range(2)]
    try:
        assert [rank.wait(timeout=HANG_SECONDS) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()

    found: dict[str, dict[str, float]] = {}
    for number in range(len(STAGES)):
        found |= json.loads((moving / f"reports-{number}.json").read_text())
    assert list(found) == list(expected)
    for position, metrics in expected.items():
        assert found[position] == pytest.approx(metrics, rel=1e-4), position
    states = [read_state(folder / STATE_FOLDER / "torch.pt") for folder in (alone / "after-0", moving / "after-3")]
    one, other = (torch.cat([tensor.flatten() for tensor in state["model"].values()]) for state in states)
    assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)
    assert states[0]["data"] == states[1]["data"]
    assert states[0]["model"].keys() == states[1]["model"].keys()


@pytest.fixture(autouse=True)
def as_in_a_new_process(tmp_path: Path) -> Iterator[None]:
    """Resets PyTorch's counter of process groups after the test, as in a new process."""
    yield
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    dist.destroy_process_group()


class Hasty(Plain):
    exchange_timeout = 1.0


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_that_do_not_meet_say_so_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    """Check both cases: the port of rank 0 is in use, and there is no rank 0."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = free_port() if rank else server.getsockname()[1]
        monkeypatch.setenv("MASTER_PORT", str(port))
        driver = TrainerDriver(Hasty, clock=time.monotonic)
        said = "timed out" if rank else "address already in use"
        with pytest.raises(
            GangError, match=rf"rank {rank} of 2 did not meet the others at 127.0.0.1:{port} .*{said}"
        ) as found:
            driver.start({"lr": 0.1}, TrainerContext(seed=1, scratch=tmp_path, rank=rank, world_size=2))
    driver.close()
    ended, broken = ended_by(found.value, 0)
    # This process has counted a group more than a new one, so it must end: they could never meet.
    assert (ended.reason, broken) == (common_pb2.RUN_END_REASON_LOST, True)


MEETS = """
import sys
import torch.distributed as dist

dist.init_process_group("gloo", init_method="env://", rank=1, world_size=2)
sys.stdin.read()
"""


class Patient(Plain):
    exchange_timeout = HANG_SECONDS


def test_a_rank_that_meets_the_others_and_is_gone_before_it_has_its_model_is_the_gangs_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    makes = TorchGang.wrapped

    def wrapped(gang: TorchGang, *arguments: Any, **options: Any) -> DistributedDataParallel:
        other.kill()
        other.wait()
        return makes(gang, *arguments, **options)

    monkeypatch.setattr(TorchGang, "wrapped", wrapped)
    driver = TrainerDriver(Patient, clock=time.monotonic)
    with subprocess.Popen([sys.executable, "-c", MEETS], stdin=subprocess.PIPE) as other:
        try:
            with pytest.raises(GangError, match="rank 0 of 2: another rank is gone"):
                driver.start({"lr": 0.1}, TrainerContext(seed=1, scratch=tmp_path, rank=0, world_size=2))
        finally:
            driver.close()
            other.kill()
