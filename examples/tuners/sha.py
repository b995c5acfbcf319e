"""Successive halving: train all configurations a little, the best third three times as long, ... (algorithm 1 of the ASHA paper)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from running import run

from hopyard.policy.rungs import rung_positions
from hopyard.study import AsyncStudy, Evaluation


async def sha(
    study: AsyncStudy, configurations: Sequence[Mapping[str, Any]], rungs: Sequence[int], eta: int = 3
) -> Evaluation:
    """Run one bracket, and return the best evaluation on its last rung.

    All n configurations train to the first of the positions `rungs`, the best n // eta to the second, and so on. If n is at least eta
    to the power of the number of promotions, one configuration reaches the last rung.
    """
    rung, answers = list(configurations), list[Evaluation]()
    for number, position in enumerate(rungs):
        if not rung:
            break
        answers = study.ranked(await study.wait_all([study.start(each, position) for each in rung]))
        rung = [answer.configuration for answer in answers[: len(configurations) // eta ** (number + 1)]]
    return answers[0]


async def tuner(study: AsyncStudy) -> Evaluation:
    """Run 27 configurations at position 1, 9 at 3, 3 at 9 and 1 at 27."""
    rng = random.Random(1)
    return await sha(study, [study.space.sample(rng) for _ in range(27)], rung_positions(27, 1, 3))


if __name__ == "__main__":
    run(tuner)
