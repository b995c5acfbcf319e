"""Options and arguments that several commands share, and the interpretation of experiment and job names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from hopyard.cli.completion import complete_experiment, complete_experiment_or_job, complete_job
from hopyard.cli.errors import WrongUse

APP_SETTINGS: Final[dict[str, Any]] = {
    "rich_markup_mode": "markdown",
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
"""Keyword arguments of all typer applications and command groups."""

Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="ADDRESS",
        help="Address of a running cluster's scheduler, HOST:PORT or unix:/PATH.",
        envvar="HOPYARD_SERVER",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", help="A cluster's data directory. [default: ./hopyard-data]", envvar="HOPYARD_DATA"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else on stdout.")]
Gpus = Annotated[
    str | None,
    typer.Option(
        "--gpus",
        metavar="all|none|LIST",
        help="GPUs to train on: all, none, or indices and UUIDs such as 0,2. [default: those that CUDA_VISIBLE_DEVICES shows]",
        show_default=False,
    ),
]
GpusPerSlot = Annotated[
    int | None,
    typer.Option(
        "--gpus-per-slot",
        metavar="N",
        min=1,
        max=1024,
        help="GPUs of each slot. [default: 1, or what --slots leaves to each]",
        show_default=False,
    ),
]
SlotsPerGpu = Annotated[
    int | None,
    typer.Option(
        "--slots-per-gpu",
        metavar="N",
        min=1,
        max=1024,
        help="Slots that share each GPU. Its memory is shared too, and not limited. [default: 1]",
        show_default=False,
    ),
]
Watch = Annotated[bool, typer.Option("--watch", help="Query every second and show what has changed; Ctrl-C ends it.")]
Experiment = Annotated[
    str | None,
    typer.Argument(
        metavar="[EXPERIMENT]",
        help="Id or name. [default: the newest]",
        show_default=False,
        autocompletion=complete_experiment,
    ),
]
ExperimentAndJob = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[EXPERIMENT] JOB",
        help="Experiment [default: the newest] and job.",
        show_default=False,
        autocompletion=complete_experiment_or_job,
    ),
]
Job = Annotated[
    str | None,
    typer.Option(
        "--job", metavar="JOB", help="One job of the experiment.", show_default=False, autocompletion=complete_job
    ),
]


def experiment_and_job(names: Sequence[str] | None, job: str | None = None) -> tuple[str | None, str]:
    """Return the experiment (None: not named) and the job that a command line names.

    Args:
        names: The words of `[EXPERIMENT] JOB`, or only the experiment if `job` is given.
        job: The value of --job; None: the last of `names` is the job.

    Raises:
        WrongUse: No job is named, or there are more than two names, including `job`.
    """
    words = [*(names or ()), *([job] if job is not None else [])]
    if not words:
        raise WrongUse("name a job: JOB, EXPERIMENT JOB, or --job JOB (hopyard jobs lists them)")
    if len(words) > 2:
        raise WrongUse(f"found {len(words)} names; allowed are JOB, or EXPERIMENT JOB")
    return (words[0] if len(words) == 2 else None), words[-1]
