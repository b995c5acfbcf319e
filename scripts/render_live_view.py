"""Draw a picture of the live view to docs/images/live.svg, from a synthetic search that looks like a real one.

    python scripts/render_live_view.py [FILE.svg]

The view is a pure function of its model, so the picture is drawn by the same code as the view in a terminal.
"""

from __future__ import annotations

import io
import math
import random
import sys
from pathlib import Path

from rich.console import Console

from hopyard.cli.live.controls import Controls
from hopyard.cli.live.model import LiveModel
from hopyard.cli.live.render import render
from hopyard.client.types import Experiment, ExperimentState, Job, JobReport, JobState, Metric, Report

WIDTH, HEIGHT = 116, 26
LONGEST = 40
NOW = 1000.0


def sample() -> LiveModel:
    """Return the model of a search in which some jobs train, some wait, and most have ended early."""
    rng = random.Random(3)
    model = LiveModel(slots=4)
    metric = Metric("accuracy", "max", target=0.985)
    jobs: list[Job] = []
    reports: list[JobReport] = []
    for number in range(1, 31):
        rate = 10 ** rng.uniform(-3.5, -0.2)
        reach = 0.985 - 0.16 * abs(math.log10(rate) + 1.4) ** 1.5 - rng.uniform(0, 0.02)
        state, position = _fate(number, reach, rng)
        values = [_value(reach, at, rng) for at in range(1, position + 1)]
        reports += [JobReport(str(number), Report(at, {"accuracy": value})) for at, value in enumerate(values, 1)]
        best = max(range(len(values)), key=values.__getitem__) if values else None
        jobs.append(
            Job(
                experiment="e1",
                id=str(number),
                state=state,
                hyperparameters={
                    "batch_size": rng.choice([32, 64, 128]),
                    "lr": rate,
                    "momentum": rng.choice([0.7, 0.8, 0.9]),
                },
                position=position,
                slots=(f"local/{number % 4}",) if state.live else (),
                best_value=values[best] if best is not None else None,
                best_position=best + 1 if best is not None else 0,
                last_value=values[-1] if values else None,
                seconds=position * 1.3,
                reason="train at position 5: ValueError: batch of one" if state is JobState.FAILED else "",
            )
        )
    champion = max((job for job in jobs if job.best_value is not None), key=lambda job: job.best_value or 0.0)
    model.apply(
        Experiment(
            id="e1",
            name="digits",
            state=ExperimentState.RUNNING,
            metric=metric,
            spec={"stop": {"jobs": 40, "max_iterations": LONGEST}},
            best_job=champion.id,
            best_value=champion.best_value,
            best_position=champion.best_position,
            slots=4,
            running_seconds=74.0,
        ),
        NOW - 10,
    )
    for job in jobs:
        model.apply(job, NOW - 10)
    for index, report in enumerate(reports):
        model.apply(report, NOW - (0 if index > len(reports) - 120 else 60))
    return model


def _fate(number: int, reach: float, rng: random.Random) -> tuple[JobState, int]:
    """Return the state and position of a job, by its best possible value `reach`: good jobs continue, poor ones have ended early."""
    if number > 28:
        return JobState.PENDING, 0
    if number in (19, 23, 26, 27):
        return JobState.RUNNING, rng.randint(6, 30)
    if number == 9:
        return JobState.FAILED, 5
    if reach > 0.93:
        return (JobState.SUSPENDED, 20) if number % 3 else (JobState.COMPLETED, LONGEST)
    return JobState.TERMINATED, 5 if reach < 0.8 else 10


def _value(reach: float, at: int, rng: random.Random) -> float:
    return reach - (reach - 0.1) * math.exp(-at / 4.5) + rng.gauss(0, 0.006)


def main() -> None:
    """Write the picture to the file of the command line."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "images" / "live.svg"
    console = Console(
        record=True, width=WIDTH, height=HEIGHT, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    controls = Controls()
    controls.selected = "9"
    console.print(render(sample(), WIDTH, HEIGHT, NOW, controls=controls))
    target.parent.mkdir(parents=True, exist_ok=True)
    console.save_svg(str(target), title="hopyard run experiment.yaml", unique_id="hopyard-live")
    print(f"wrote {target}")


if __name__ == "__main__":
    main()
