"""Population based training: the worst members are replaced by changed copies of the best (Jaderberg et al., 2017).

A member's learning rate is a sequence with one value for each interval. A copy has its parent's values so far and another value
from now on, so it shares the parent's training, and nothing is trained twice.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from typing import Any

from running import run

from hopyard.study import AsyncStudy, Evaluation

EVERY, INTERVALS, LEAST, MOST = 3, 4, 0.01, 4.0
LR = {"loguniform": [LEAST, MOST]}
STEPS = {"milestones": [EVERY * number for number in range(1, INTERVALS)], "values": [LR] * INTERVALS}
SPACE: Mapping[str, Any] = {"lr": {"sequence": {"multi_step": STEPS}}, "momentum": 0.5}


def with_lr(configuration: Mapping[str, Any], interval: int, lr: float) -> dict[str, Any]:
    """Return a copy of a configuration with another learning rate from an interval on, limited to LEAST .. MOST."""
    found = copy.deepcopy(dict(configuration))
    values = found["lr"]["sequence"]["multi_step"]["values"]
    values[interval:] = [min(max(lr, LEAST), MOST)] * (INTERVALS - interval)
    return found


async def pbt(study: AsyncStudy, population: int, seed: int = 1) -> Evaluation:
    """Train a population, and return its best evaluation.

    After each interval, copies of the best quarter with 0.8 or 1.2 times the learning rate replace the worst quarter.
    """
    rng = random.Random(seed)
    drawn = [study.space.sample(rng) for _ in range(population)]
    members = [with_lr(each, 0, LEAST * (MOST / LEAST) ** rng.random()) for each in drawn]
    quarter = max(population // 4, 1)
    for interval in range(1, INTERVALS):
        answers = study.ranked(await study.wait_all([study.start(each, EVERY * interval) for each in members]))
        members = [dict(answer.configuration) for answer in answers]
        for better, worse in zip(range(quarter), range(population - quarter, population), strict=True):
            lr = members[better]["lr"]["sequence"]["multi_step"]["values"][interval - 1]
            members[worse] = with_lr(members[better], interval, lr * rng.choice([0.8, 1.2]))
    return study.ranked(await study.wait_all([study.start(each, EVERY * INTERVALS) for each in members]))[0]


async def tuner(study: AsyncStudy) -> Evaluation:
    """Run 8 members for 4 intervals of 3 epochs."""
    return await pbt(study, population=8)


if __name__ == "__main__":
    run(tuner, SPACE, EVERY * INTERVALS)
