"""Hints on the next command, printed after an experiment was changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hopyard._common import command_template
from hopyard.client.types import Experiment, ExperimentState
from hopyard.spec import ExperimentSpec
from hopyard.spec.models import REMOTE


def unused_note(spec: ExperimentSpec) -> str:
    """Return a note on hyperparameters of the space that the command line of the program does not use; empty if it uses all."""
    command = spec.command or (spec.log.command if spec.log else ())
    names = command_template.unused(command, spec.space)
    if not names:
        return ""
    return (
        f"note: the command does not use {', '.join(f'{{{name}}}' for name in names)} of the space: these values reach "
        "the program only if it calls hopyard.hyperparameters() or reads HOPYARD_HYPERPARAMETERS"
    )


def mended(experiment: Experiment) -> str:
    """Return the text before the command that resumes an experiment whose policy failed."""
    policy = experiment.spec.get("policy") or {}
    name = policy.get("name", "") if isinstance(policy, Mapping) else str(policy)
    if name.startswith(REMOTE):
        return f"fix it, restart its process (hopyard policy serve ... --name {name.removeprefix(REMOTE)}), then:"
    return "after a fix, continue with:"


def next_step(experiment: Experiment, idle: Path | None, where: str, *, extended: bool) -> str:
    """Return the command that continues the experiment; empty if it trains or will do so without one.

    Args:
        experiment: The experiment after the change.
        idle: The data directory if no cluster serves it, else None.
        where: The options for the same cluster, with a leading blank.
        extended: Whether the change was an extension.
    """
    resume = f"hopyard resume {experiment.id}{where}"
    if experiment.state.ended:
        if extended:
            return f"the extension leaves nothing to train; add jobs: hopyard extend {experiment.id} --jobs N{where}"
        return f"it has ended; to continue it: hopyard extend {experiment.id}{where}"
    if experiment.state is ExperimentState.ENDING:
        return "it is ending; the change takes effect after its end"
    if idle is not None:
        return f"no cluster runs in {idle} to train it: {resume}"
    if experiment.state in (ExperimentState.PAUSED, ExperimentState.PAUSING):
        return f"it stays paused until: {resume}"
    return ""
