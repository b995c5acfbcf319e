"""Tests that the lander's trainer resumes bit for bit, although the state of its environment cannot be saved."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from hopyard.local import verify_resume
from hopyard.spec import load_spec

torch = pytest.importorskip("torch", reason="torch is not installed: pip install './hopyard[torch]'")
pytest.importorskip("Box2D", reason="the extra lunarlander is not installed: pip install './hopyard[lunarlander]'")

FOLDER = Path(__file__).parents[3] / "benchmarks" / "traces" / "lunarlander"


@pytest.fixture(autouse=True)
def process_as_it_was() -> Iterator[None]:
    """Restores the process's number of PyTorch threads, which the trainer changes."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_a_suspended_agent_goes_on_bit_for_bit() -> None:
    space = load_spec((FOLDER / "experiment.yaml").read_text()).space
    # With these values the replay buffer wraps, learning has begun, and the second report is in the middle of an episode.
    given = space.sample_at(3, 0) | {"warmup": 500, "buffer_size": 2000, "train_every": 6}
    verify_resume(runpy.run_path(str(FOLDER / "lander.py"))["LanderTrainer"], given, until=2, seed=4)
