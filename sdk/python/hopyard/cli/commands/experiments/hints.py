"""Texts that commands print after an experiment was changed: the next command for the user, and notes on the experiment file."""

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
    """Return what the user must do before resuming an experiment whose policy failed.

    The result is the beginning of a message that ends with the command to resume.
    """
    policy = experiment.spec.get("policy") or {}
    name = policy.get("name", "") if isinstance(policy, Mapping) else str(policy)
    if name.startswith(REMOTE):
        return f"fix it, restart its process (hopyard policy serve ... --name {name.removeprefix(REMOTE)}), then:"
    return "after a fix, continue with:"


def next_step(experiment: Experiment, idle: Path | None, where: str, *, extended: bool) -> str:
    """Return a message with the command that continues the experiment after a change. Empty: it continues without a command.

    Args:
        experiment: The experiment after the change.
        idle: The data directory if no cluster serves it; None: a cluster runs.
        where: The options with which a command finds the same cluster, with a leading blank; empty: none needed.
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
