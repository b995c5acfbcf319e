"""The commands `run` and `resume`: run an experiment with its live view until it ends or is suspended."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hopyard.cli.options import Data, Experiment, Gpus, GpusPerSlot, Job, Json, Server, SlotsPerGpu

_PANEL = "Train"
Slots = Annotated[
    int | None,
    typer.Option(
        "--slots",
        min=1,
        max=1024,
        help="Number of parallel jobs. [default: one per GPU; without GPUs the experiment's resources.slots, else as many as "
        "the CPUs allow]",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands `run` and `resume` to the command line `app`."""
    for command in (run, resume):
        app.command(rich_help_panel=_PANEL)(command)


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An experiment file (YAML or JSON).")],
    slots: Slots = None,
    gpus: Gpus = None,
    gpus_per_slot: GpusPerSlot = None,
    slots_per_gpu: SlotsPerGpu = None,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="Folder of the training code. [default: the folder of FILE]"),
    ] = None,
    traces: Annotated[
        Path | None,
        typer.Option(
            "--export-trace",
            metavar="FILE",
            help="Write the traces to this file when the experiment ends or is suspended, as `hopyard trace` does.",
            show_default=False,
        ),
    ] = None,
    server: Server = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Run an experiment and watch it.

    Without --server, a cluster is started in the data directory on this computer. Ctrl-C suspends: every job saves its
    state and leaves its slot, and `hopyard resume` continues. A second Ctrl-C quits immediately; jobs then continue
    from their last snapshot. A closed terminal or output suspends, too; `nohup` keeps the command running.

    In a terminal, the keys of the live view select a job (up, down), follow its log (l), pause or resume it (p) or the
    experiment (P), sort (s), and leave (q): an experiment of a cluster that this command did not start then continues. The key ?
    lists all.

    On a computer with NVIDIA GPUs each visible GPU is one slot, and a job sees only the GPUs of its slot; --slots divides
    the GPUs evenly. Options for slots and GPUs apply only to a cluster that this command starts.

    The folder of FILE, at most 100 MiB, is sent to the nodes. A `.hopyardignore` in it, with the syntax of
    `.gitignore`, excludes files such as data and results.

    **Examples:** `hopyard run experiment.yaml`, `hopyard run experiment.yaml --slots 4 --json > result.json`,
    `hopyard run experiment.yaml --gpus 0,2`
    """
    from hopyard._runtime.gpus import GpuOptions
    from hopyard.cli.commands.experiments.session_commands import run_file

    options = GpuOptions(gpus, gpus_per_slot, slots_per_gpu)
    raise typer.Exit(
        run_file(file, folder=folder, slots=slots, gpus=options, server=server, data=data, json=json, traces=traces)
    )


def resume(
    experiment: Experiment = None,
    job: Job = None,
    slots: Slots = None,
    gpus: Gpus = None,
    gpus_per_slot: GpusPerSlot = None,
    slots_per_gpu: SlotsPerGpu = None,
    server: Server = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Continue a suspended experiment and watch it.

    If no cluster serves the data directory, one is started in it, and only this experiment trains: others that were
    running are paused. With --job, a job that was paused with `hopyard pause --job` is released to its policy, and
    nothing is watched.

    **Examples:** `hopyard resume`, `hopyard resume digits --slots 4`, `hopyard resume digits --job 7`
    """
    from hopyard._runtime.gpus import GpuOptions

    options = GpuOptions(gpus, gpus_per_slot, slots_per_gpu)
    if job is not None:
        from hopyard.cli.commands.experiments.job_actions import resume_one
        from hopyard.cli.errors import WrongUse

        if slots is not None:
            raise WrongUse("--slots cannot be combined with --job: it is for an experiment")
        if options.given:
            raise WrongUse(f"{options.given} cannot be combined with --job: it is for an experiment")
        resume_one(experiment, job, server, data, json)
        return
    from hopyard.cli.commands.experiments.session_commands import resume_experiment

    raise typer.Exit(resume_experiment(experiment, slots=slots, gpus=options, server=server, data=data, json=json))
