"""Run a tuner of this folder on a temporary cluster, and print the result."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from hopyard import AsyncClient, AsyncStudy
from hopyard.study import Evaluation

FOLDER: Final = Path(__file__).parent
SPACE: Final = {"lr": {"loguniform": [0.01, 4.0]}, "momentum": {"uniform": [0.0, 0.95]}}


def terms(space: Mapping[str, Any], length: int) -> dict[str, Any]:
    """Return the specification of a study of this folder's trainer over a space, with a number of epochs."""
    return {
        "trainer": "train.py:Descent",
        "metric": {"name": "loss", "mode": "min"},
        "space": space,
        "stop": {"max_iterations": length},
    }


async def tuned(tuner: Callable[[AsyncStudy], Awaitable[Evaluation]], space: Mapping[str, Any], length: int) -> None:
    """Create a study on a temporary cluster, run the tuner on it, and print the best evaluation and the numbers of epochs."""
    with tempfile.TemporaryDirectory() as data:
        async with (
            AsyncClient.local(data, slots=2) as client,
            await AsyncStudy(client).create(folder=FOLDER, **terms(space, length)) as study,
        ):
            best = await tuner(study)
            jobs = await client.jobs(study.experiment)
            trained = len(await client.statistics(study.experiment))
    asked = sum(job.position for job in jobs)
    print(f"best: loss {best.value:.3g} at {best.position} with {dict(best.configuration)}")
    print(f"{len(jobs)} evaluations of {asked} epochs, of which {trained} were trained")


def run(
    tuner: Callable[[AsyncStudy], Awaitable[Evaluation]], space: Mapping[str, Any] = SPACE, length: int = 27
) -> None:
    """Run a tuner over a space, with `length` epochs at most; each file of this folder calls it."""
    asyncio.run(tuned(tuner, space, length))
