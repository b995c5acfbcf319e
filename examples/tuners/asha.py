"""Asynchronous successive halving: the best of a rung so far are promoted at once (algorithm 2 of the ASHA paper)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping
from typing import Any

from running import run

from hopyard.policy.rungs import rung_positions
from hopyard.study import AsyncStudy, Evaluation


async def asha(
    study: AsyncStudy, new: Iterable[Mapping[str, Any]], least: int, most: int, eta: int = 3, width: int = 4
) -> Evaluation:
    """Keep at most `width` evaluations running, and return the best one on the highest rung.

    A free place gets the best evaluation of the highest rung that has one to promote, or else a new configuration. Rungs are at
    `most`, most / eta, and so on, not below `least`.
    """
    positions = rung_positions(most, least, eta)
    rungs: list[list[Evaluation]] = [[] for _ in positions]
    promoted, coming, running = set[str](), iter(new), dict[asyncio.Task[Evaluation], int]()

    def following() -> tuple[Mapping[str, Any], int] | None:
        for rung in reversed(range(len(positions) - 1)):
            for answer in study.ranked(rungs[rung])[: len(rungs[rung]) // eta]:
                if answer.job not in promoted:
                    promoted.add(answer.job)
                    return answer.configuration, rung + 1
        fresh = next(coming, None)
        return None if fresh is None else (fresh, 0)

    while True:
        while len(running) < width and (found := following()) is not None:
            running[study.start(found[0], positions[found[1]])] = found[1]
        if not running:
            return study.ranked(next(rung for rung in reversed(rungs) if rung))[0]
        for task in (await study.wait_any(running))[0]:
            rungs[running.pop(task)].append(task.result())


async def tuner(study: AsyncStudy) -> Evaluation:
    """Run 27 configurations with rungs at positions 1, 3, 9 and 27."""
    rng = random.Random(1)
    return await asha(study, [study.space.sample(rng) for _ in range(27)], least=1, most=27)


if __name__ == "__main__":
    run(tuner)
