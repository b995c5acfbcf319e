"""The training of all contenders: analytic curves with 20 ms per iteration. Each iteration writes a line to a log.

It uses the standard library only, because it runs in each contender's virtual environment.
"""

from __future__ import annotations

import os
import random
import time

PAUSE = float(os.environ.get("RIVALS_PAUSE", "0.02"))
"""Seconds that an iteration sleeps."""


def loss(index: int, position: int) -> float:
    """Return the loss of a configuration after `position` iterations: a power law that falls to a floor, with random parameters."""
    rng = random.Random(index)
    floor, scale, power = rng.uniform(0.1, 1.0), rng.uniform(0.5, 2.0), rng.uniform(0.2, 1.0)
    return float(floor + scale * position**-power)


def iteration(index: int, position: int) -> float:
    """Train a configuration from the previous position to this one; return its loss."""
    began = time.time()
    time.sleep(PAUSE)
    found = loss(index, position)
    with open(os.path.join(os.environ["RIVALS_LOG"], f"{os.getpid()}.log"), "a") as log:
        log.write(f"{index} {position} {began!r} {time.time()!r}\n")
    return found
