"""Scripts of several kinds: `programs.py KIND`. Each iteration reports when it began; with --checkpoint, also its state."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hopyard

State = Path | None
Step = Callable[[], None]


def trivial() -> tuple[Step, Any]:
    """Return the step of a script that does nothing, and no state."""
    return lambda: None, None


def dense() -> tuple[Step, Any]:
    """Return the step of a script with 64 MB of NumPy numbers, which compression cannot shrink, and no state."""
    import numpy as np

    rng = np.random.default_rng(0)
    weights = rng.random(8_000_000)

    def step() -> None:
        weights[:1000] += rng.random(1000)

    return step, None


def network(width: int) -> tuple[Any, Any]:
    """Return a small convolutional network and its optimizer. `width` is its number of channels."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(width * 196, 10)
    )
    return model, torch.optim.Adam(model.parameters(), lr=1e-3)


def cnn(ballast: int = 0) -> tuple[Step, Any]:
    """Return the step and the state of a PyTorch script, with `ballast` additional bytes of data in memory."""
    import torch
    from torch.nn.functional import cross_entropy

    model, optimizer = network(8)
    images, labels = torch.randn(64, 1, 28, 28), torch.randint(10, (64,))
    kept = torch.randint(256, (ballast,), dtype=torch.uint8)

    def step() -> None:
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if ballast:
            kept[:1000] += 1

    return step, (model, optimizer)


def loader() -> tuple[Step, Any]:
    """Return the step and the state of a PyTorch script with two persistent worker processes that load data."""
    import torch
    from torch.nn.functional import cross_entropy
    from torch.utils.data import DataLoader, TensorDataset

    model, optimizer = network(8)
    data = TensorDataset(torch.randn(2048, 1, 28, 28), torch.randint(10, (2048,)))
    made = DataLoader(data, batch_size=64, shuffle=True, num_workers=2, persistent_workers=True)

    def batches() -> Iterator[Any]:
        while True:
            yield from made

    stream = batches()

    def step() -> None:
        images, labels = next(stream)
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step, (model, optimizer)


KINDS: dict[str, Callable[[], tuple[Step, Any]]] = {
    "trivial": trivial,
    "numpy": dense,
    "cnn": cnn,
    "workers": loader,
    "350MB": lambda: cnn(120_000_000),
}


def checkpointing(state: Any) -> Callable[[], Path]:
    """Restore the state from the run's checkpoint, if there is one; return a function that saves the state to a file."""
    import torch

    model, optimizer = state
    if (saved := hopyard.checkpoint()) is not None:
        loaded = torch.load(saved, weights_only=True)
        model.load_state_dict(loaded["model"])
        optimizer.load_state_dict(loaded["optimizer"])

    def save() -> Path:
        file = Path("state.pt")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        return file

    return save


def main() -> None:
    """Train until the run ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--checkpoint", action="store_true")
    given = parser.parse_args()
    step, state = KINDS[given.kind]()
    save = checkpointing(state) if given.checkpoint else None
    while True:
        began = time.time()
        step()
        hopyard.report(began=began, checkpoint=save() if save is not None else None)


main()
