"""Hyperband: brackets of successive halving that start at different rungs, concurrently on one study (Li et al., 2018)."""

from __future__ import annotations

import asyncio
import random

from running import run
from sha import sha

from hopyard.study import AsyncStudy, Evaluation


def brackets(most: int, eta: int = 3) -> list[tuple[int, int]]:
    """Return (number of configurations, first rung) of each bracket: for 81 and 3, (81, 1), (34, 3), (15, 9), (8, 27), (5, 81)."""
    halvings = 0
    while eta ** (halvings + 1) <= most:
        halvings += 1
    return [
        (-(-(halvings + 1) * eta**s // (s + 1)), most // eta**s)  # rounded up
        for s in reversed(range(halvings + 1))
    ]


async def hyperband(study: AsyncStudy, most: int, eta: int = 3, seed: int = 1) -> Evaluation:
    """Run all brackets concurrently, and return the best evaluation."""
    rng = random.Random(seed)
    drawn = [([study.space.sample(rng) for _ in range(number)], least) for number, least in brackets(most, eta)]
    return study.ranked(await asyncio.gather(*(sha(study, each, least, most, eta) for each, least in drawn)))[0]


async def tuner(study: AsyncStudy) -> Evaluation:
    """Run brackets of 27 configurations from position 1, 12 from 3, 6 from 9 and 4 from 27."""
    return await hyperband(study, most=27)


if __name__ == "__main__":
    run(tuner)
