"""The live view where there is no terminal: one line a time."""

from __future__ import annotations

from hopyard._common import formatting
from hopyard.cli.live.model import LiveModel
from hopyard.cli.live.style import word
from hopyard.cli.outcome import ASKED
from hopyard.client.types import Experiment, JobState


def plain_line(model: LiveModel, now: float) -> str:
    """The model in one line of text."""
    experiment = model.experiment
    if experiment is None:
        return f"{model.source or 'experiment'}: waiting for the cluster"
    # Before the first job arrives, the experiment's own count is known.
    counted = {state.value: amount for state, amount in model.counts().items()} or experiment.jobs
    counts = ", ".join(f"{amount} {word(state)}" for state, amount in counted.items() if amount) or "no jobs yet"
    live = sum(job.state.live for job in model.jobs.values())
    if (busy := model.machines()[0]) > live:
        counts += f" ({busy} machines busy)"
    best = model.without_best()
    if model.best_value is not None:
        best = (
            f"best {experiment.metric.name} {formatting.number(experiment.best_value)} "
            f"(job {experiment.best_job} at {experiment.best_position})"
        )
    left = model.remaining(now)
    remaining = f", {left}" if left else ""
    waits = f"  {formatting.first_line(_waits(model, experiment))}".rstrip()
    pace = model.silence(now) or f"{model.rate(now):.1f} reports/s"
    return (
        f"{formatting.duration(model.elapsed(now)):>7}  {experiment.name} {experiment.state.name}{remaining}  "
        f"{counts}  {best}  {pace}{waits}{f'  {model.trouble}' if model.trouble else ''}"
    )


def _waits(model: LiveModel, experiment: Experiment) -> str:
    """Why the experiment waits; else, while nothing trains, what the first job that starts does, or why most of its jobs wait."""
    if experiment.reason == ASKED:
        return ""  # For a moment, again and again: what takes longer says how long.
    live = [job for job in model.jobs.values() if job.state.live]
    if experiment.reason or any(job.state is not JobState.STARTING for job in live):
        return experiment.reason
    if starting := next((job for job in live if job.reason), None):
        return f"job {starting.id} {starting.reason}"
    return next((reason for _, _, reason in model.waits()), "")
