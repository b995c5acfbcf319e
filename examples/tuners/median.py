"""Median stopping: stops a trial whose best value is worse than the median of the others' averages so far (Vizier, 2017)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from statistics import mean, median
from typing import Any

from running import run

from hopyard.study import AsyncStudy, Evaluation


async def by_median(
    study: AsyncStudy, configurations: list[Mapping[str, Any]], most: int, every: int = 3, width: int = 4
) -> Evaluation:
    """Train each configuration in steps of `every`, at most `width` at a time; return the best one that reached `most`."""
    sign = 1.0 if study.metric.mode == "max" else -1.0
    ended: list[Evaluation] = []
    room = asyncio.Semaphore(width)

    def average(answer: Evaluation, position: int) -> float:
        return mean(sign * point.value for point in answer.curve if point.position <= position)

    async def trial(configuration: Mapping[str, Any]) -> None:
        async with room:
            position, answer = every, await study.eval(configuration, every)
            while position < most:
                others = [average(other, position) for other in ended if other.position >= position]
                if others and max(sign * point.value for point in answer.curve) < median(others):
                    break
                position = min(position + every, most)
                answer = await study.eval(configuration, position)
            ended.append(answer)

    await asyncio.gather(*map(trial, configurations))
    return study.ranked(answer for answer in ended if answer.position >= most)[0]


async def tuner(study: AsyncStudy) -> Evaluation:
    """Run 12 configurations to position 27, and check them every 3 epochs."""
    rng = random.Random(1)
    return await by_median(study, [study.space.sample(rng) for _ in range(12)], most=27)


if __name__ == "__main__":
    run(tuner)
