"""The live view where there is no terminal: one line a time."""

from __future__ import annotations

from hopyard.cli import text
from hopyard.cli.live.model import LiveModel


def plain_line(model: LiveModel, now: float) -> str:
    """The model in one line of text."""
    experiment = model.experiment
    if experiment is None:
        return f"{model.source or 'experiment'}: waiting for the cluster"
    counts = ", ".join(f"{amount} {state.name.lower()}" for state, amount in model.counts().items()) or "no jobs yet"
    best = "no report yet"
    if experiment.best_job is not None:
        best = (
            f"best {experiment.metric.name} {text.number(experiment.best_value)} "
            f"(job {experiment.best_job} at {experiment.best_position})"
        )
    left = model.time_left(now) if experiment.state.name == "RUNNING" else None
    remaining = f", about {text.duration(left)} left" if left is not None else ""
    return (
        f"{text.duration(model.elapsed(now)):>7}  {experiment.name} {experiment.state.name}{remaining}  "
        f"{counts}  {best}  {model.rate(now):.1f} reports/s"
    )
