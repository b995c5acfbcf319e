"""What PyTorch's handler settles for its process does not outlive a test."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Put back how this process computes."""
    yield
    if (torch := sys.modules.get("torch")) is not None:
        torch.use_deterministic_algorithms(False)
        torch.set_flush_denormal(False)
