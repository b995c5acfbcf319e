"""Hyperband: brackets of successive halving that start at different rungs, concurrently on one study (Li et al., 2018)."""

from __future__ import annotations

import asyncio
import random

from running import run
from sha import sha

from hopyard.policy.rungs import rung_positions
from hopyard.study import AsyncStudy, Evaluation


def brackets(most: int, eta: int = 3) -> list[tuple[int, tuple[int, ...]]]:
    """Return (number of configurations, rungs) of each bracket, for 9 and 3: (9, (1, 3, 9)), (5, (3, 9)) and (3, (9,))."""
    rungs = rung_positions(most, 1, eta)
    m = len(rungs)
    return [(-(-m * eta ** (m - 1 - s) // (m - s)), rungs[s:]) for s in range(m)]  # rounded up


async def hyperband(study: AsyncStudy, most: int, eta: int = 3, seed: int = 1) -> Evaluation:
    """Run all brackets concurrently, and return the best evaluation."""
    rng = random.Random(seed)
    drawn = [([study.space.sample(rng) for _ in range(number)], rungs) for number, rungs in brackets(most, eta)]
    return study.ranked(await asyncio.gather(*(sha(study, each, rungs, eta) for each, rungs in drawn)))[0]


async def tuner(study: AsyncStudy) -> Evaluation:
    """Run brackets of 27 configurations from position 1, 12 from 3, 6 from 9 and 4 from 27."""
    return await hyperband(study, most=27)


if __name__ == "__main__":
    run(tuner)
