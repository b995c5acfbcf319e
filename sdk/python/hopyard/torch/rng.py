"""Seeds, captures and restores the states of all random generators that a training may use."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Seed the global random generators of Python, NumPy and PyTorch (all devices)."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # The maximum for NumPy's legacy generator.
    torch.manual_seed(seed % 2**63)


def capture_random_states(device: torch.device) -> dict[str, Any]:
    """Return the states of the global random generators of Python, NumPy and PyTorch, and of `device` if it is a GPU.

    The result contains only tensors and plain containers, so it can be loaded with `weights_only=True`.
    """
    version, numbers, gauss = random.getstate()
    kind, keys, place, has_gauss, cached = np.random.get_state()
    states: dict[str, Any] = {
        "python": {"version": version, "numbers": list(numbers), "gauss": gauss},
        "numpy": {
            "kind": str(kind),
            "keys": [int(key) for key in np.asarray(keys)],
            "place": int(place),
            "has_gauss": int(has_gauss),
            "cached": float(cached),
        },
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_random_states(states: dict[str, Any], device: torch.device) -> None:
    """Restore the states that `capture_random_states` returned.

    The state of a GPU is used only on a GPU. A training that moves to another kind of device continues, but its results
    are not bit for bit the same.
    """
    python = states["python"]
    random.setstate((python["version"], tuple(python["numbers"]), python["gauss"]))
    legacy = states["numpy"]
    keys = np.array(legacy["keys"], dtype=np.uint32)
    np.random.set_state((legacy["kind"], keys, legacy["place"], legacy["has_gauss"], legacy["cached"]))
    torch.set_rng_state(states["torch"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
