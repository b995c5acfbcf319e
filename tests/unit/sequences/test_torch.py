"""Tests that sequences have the values of torch.optim.lr_scheduler for the same parameters."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from hopyard.sequences import (
    Chain,
    ConstantSequence,
    Cosine,
    CosineWarmRestarts,
    Cyclic,
    Exponential,
    Linear,
    MultiStep,
    Polynomial,
    Sequence,
    Step,
    Warmup,
)

torch = pytest.importorskip("torch")
schedulers = pytest.importorskip("torch.optim.lr_scheduler")


_STEPS = 250


def _torch_values(lr: float, make: Callable[[Any], Any]) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    values = list[float]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SequentialLR itself uses the deprecated parameter
        scheduler = make(optimizer)
        for _ in range(_STEPS):
            values.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
    return values


CASES: dict[str, tuple[float, Callable[[Any], Any], Sequence]] = {
    "step": (0.1, lambda o: schedulers.StepLR(o, 30, 0.1), Step(0.1, 30, 0.1)),
    "step one": (0.1, lambda o: schedulers.StepLR(o, 1, 0.97), Step(0.1, 1, 0.97)),
    "multi step": (0.3, lambda o: schedulers.MultiStepLR(o, [7, 90, 135], 0.2), MultiStep(0.3, (7, 90, 135), 0.2)),
    "exponential": (0.1, lambda o: schedulers.ExponentialLR(o, 0.95), Exponential(0.1, 0.95)),
    "linear": (0.1, lambda o: schedulers.LinearLR(o, 0.25, 0.75, 40), Linear(0.025, 0.075, 40)),
    "cosine": (0.1, lambda o: schedulers.CosineAnnealingLR(o, 45, 0.001), Cosine(0.1, 45, 0.001)),
    "warm restarts": (
        0.1,
        lambda o: schedulers.CosineAnnealingWarmRestarts(o, 10, 2, 0.003),
        CosineWarmRestarts(0.1, 10, 2, 0.003),
    ),
    "triangular": (
        0.1,
        lambda o: schedulers.CyclicLR(o, 0.001, 0.1, 20, 13, cycle_momentum=False),
        Cyclic(0.001, 0.1, 20, 13),
    ),
    "triangular2": (
        0.1,
        lambda o: schedulers.CyclicLR(o, 0.001, 0.1, 20, mode="triangular2", cycle_momentum=False),
        Cyclic(0.001, 0.1, 20, mode="triangular2"),
    ),
    "exp_range": (
        0.1,
        lambda o: schedulers.CyclicLR(o, 0.001, 0.1, 20, mode="exp_range", gamma=0.99, cycle_momentum=False),
        Cyclic(0.001, 0.1, 20, mode="exp_range", gamma=0.99),
    ),
    "polynomial": (0.1, lambda o: schedulers.PolynomialLR(o, 100, 0.9), Polynomial(0.1, 100, 0.9)),
    "square": (0.1, lambda o: schedulers.PolynomialLR(o, 100, 2.0), Polynomial(0.1, 100, 2)),
    "constant": (0.1, lambda o: schedulers.ConstantLR(o, 0.5, 8), MultiStep(milestones=(8,), values=(0.05, 0.1))),
    "chain": (
        0.1,
        lambda o: schedulers.SequentialLR(
            o, [schedulers.ConstantLR(o, 0.1, 20), schedulers.ExponentialLR(o, 0.9)], milestones=[20]
        ),
        Chain((ConstantSequence(0.01), Exponential(0.1, 0.9)), (20,)),
    ),
    "warm-up": (
        0.1,
        lambda o: schedulers.SequentialLR(
            o, [schedulers.LinearLR(o, 0.1, 1.0, 9), schedulers.CosineAnnealingLR(o, 60)], milestones=[10]
        ),
        Warmup(10, 0.1, then=Cosine(t_max=60)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_values_are_those_of_torch(name: str) -> None:
    lr, make, sequence = CASES[name]
    ours = [sequence.value(position) for position in range(_STEPS)]
    # torch computes most values step by step; near zero, its rounding errors are those of the earlier, larger values.
    assert ours == pytest.approx(_torch_values(lr, make), rel=1e-12, abs=1e-12 * lr)
