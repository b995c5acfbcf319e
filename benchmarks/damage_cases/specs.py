"""The experiments of the clusters that are damaged. All are deterministic: their results do not depend on times, slots or kills."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

CODE: Final = Path(__file__).parent / "chain"
"""The training code."""

CHAIN: Final = "chain"
"""Name of the experiment that most cases damage."""

TREE: Final = "tree"
"""Name of the experiment that runs beside it. Its jobs share training, so they start from snapshots of each other."""

ENDED: Final = "ended"
"""Name of the experiment that has ended before the damage."""

LAST: Final = "last"
"""Name of the experiment that `hopyard run` runs after the damage."""

CHAIN_LENGTH: Final = 16
TREE_LENGTH: Final = 14
"""Lengths of their jobs: beyond the position at which the training code holds them while their cluster is not to complete them."""

SLOTS: Final = 3

_LATER: Final = {"sequence": {"multi_step": {"milestones": [6], "values": [0.1, 0.01]}}}


def spec(name: str) -> Mapping[str, Any]:
    """Return the specification of an experiment: CHAIN, TREE, ENDED or LAST."""
    terms: dict[str, Any] = {
        "name": name,
        "trainer": "train.py:Chain",
        "metric": {"name": "score", "mode": "max"},
        "generator": "grid",
        "snapshot": {"every": 2},
    }
    match name:
        case "tree":
            terms |= {"space": {"x": {"choice": [0.1, _LATER]}}, "policy": "stage_tree"}
            return terms | {"stop": {"max_iterations": TREE_LENGTH}}
        case "chain":
            return terms | {"space": {"x": {"choice": [0, 1]}}, "stop": {"max_iterations": CHAIN_LENGTH}}
        case "ended":
            return terms | {"space": {"x": {"choice": [5]}}, "stop": {"max_iterations": 4}}
        case _:
            return terms | {"space": {"x": {"choice": [7]}}, "stop": {"max_iterations": 3}}
