"""Successive halving: train all configurations a little, the best third three times as long, ... (algorithm 1 of the ASHA paper)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from running import run

from hopyard.study import AsyncStudy, Evaluation


async def sha(
    study: AsyncStudy, configurations: Sequence[Mapping[str, Any]], least: int, most: int, eta: int = 3
) -> Evaluation:
    """Run one bracket, and return the best evaluation on its last rung.

    All n configurations train to `least`, the best n // eta to eta * least, and so on as far as `most` allows. If n is at least eta
    to the power of the number of promotions, one configuration reaches the last rung.
    """
    rung, position, number = list(configurations), least, len(configurations)
    while True:
        answers = study.ranked(await study.wait_all([study.start(each, position) for each in rung]))
        number //= eta
        if position * eta > most or number == 0:
            return answers[0]
        rung, position = [answer.configuration for answer in answers[:number]], position * eta


async def tuner(study: AsyncStudy) -> Evaluation:
    """Run 27 configurations at position 1, 9 at 3, 3 at 9 and 1 at 27."""
    rng = random.Random(1)
    return await sha(study, [study.space.sample(rng) for _ in range(27)], least=1, most=27)


if __name__ == "__main__":
    run(tuner)
