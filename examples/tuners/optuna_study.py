"""Optuna proposes (ask), a study trains, Optuna learns (tell): four trials at a time."""

from __future__ import annotations

import asyncio
import math

import optuna
from optuna.trial import TrialState
from running import SPACE, run

from hopyard.study import AsyncStudy, Evaluation


async def with_optuna(study: AsyncStudy, trials: int, position: int, width: int = 4, seed: int = 1) -> Evaluation:
    """Run `trials` trials, each to a position and at most `width` at a time, and return the best one."""
    maximize = study.metric.mode == "max"
    sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
    proposing = optuna.create_study(direction="maximize" if maximize else "minimize", sampler=sampler)
    answers: list[Evaluation] = []
    room = asyncio.Semaphore(width)

    async def objective() -> None:
        async with room:
            trial = proposing.ask()
            (least, most), (low, high) = SPACE["lr"]["loguniform"], SPACE["momentum"]["uniform"]
            lr, momentum = trial.suggest_float("lr", least, most, log=True), trial.suggest_float("momentum", low, high)
            answer = await study.eval({"lr": lr, "momentum": momentum}, position)
            if math.isfinite(answer.value):
                proposing.tell(trial, answer.value)
            else:
                proposing.tell(trial, state=TrialState.FAIL)
            answers.append(answer)

    await asyncio.gather(*(objective() for _ in range(trials)))
    return study.ranked(answers)[0]


async def tuner(study: AsyncStudy) -> Evaluation:
    """Run 24 trials of 9 epochs."""
    return await with_optuna(study, trials=24, position=9)


if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    run(tuner)
