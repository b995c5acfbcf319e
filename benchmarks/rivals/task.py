"""What all contenders train: analytic curves, 20 ms an iteration. Each iteration is a line of a log, the same for all of them.

Standard library only: it runs in each contender's own environment.
"""

from __future__ import annotations

import os
import random
import time

PAUSE = float(os.environ.get("RIVALS_PAUSE", "0.02"))
"""Seconds that an iteration sleeps."""


def loss(index: int, position: int) -> float:
    """The loss of a configuration after so many iterations: it falls by a power of them to a floor of its own."""
    rng = random.Random(index)
    floor, scale, power = rng.uniform(0.1, 1.0), rng.uniform(0.5, 2.0), rng.uniform(0.2, 1.0)
    return float(floor + scale * position**-power)


def iteration(index: int, position: int) -> float:
    """Trains a configuration from the position before to this one; answers its loss there."""
    began = time.time()
    time.sleep(PAUSE)
    found = loss(index, position)
    with open(os.path.join(os.environ["RIVALS_LOG"], f"{os.getpid()}.log"), "a") as log:
        log.write(f"{index} {position} {began!r} {time.time()!r}\n")
    return found
