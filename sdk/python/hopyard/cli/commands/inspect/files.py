"""Commands that fetch files of jobs: logs, download."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hopyard.cli.completion import complete_job
from hopyard.cli.options import Data, Experiment, ExperimentAndJob, Job, Json, Server

if TYPE_CHECKING:
    from hopyard.client.async_client import AsyncClient
    from hopyard.client.types import Download
    from hopyard.client.types import Job as JobRow

_PANEL = "Look"


def register(app: typer.Typer) -> None:
    """Add the commands `logs` and `download` to the command line `app`."""
    for command in (logs, download):
        app.command(rich_help_panel=_PANEL)(command)


def logs(
    names: ExperimentAndJob = None,
    named: Job = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Follow the output until the job has ended.")] = False,
    rank: Annotated[
        int, typer.Option("--rank", min=0, help="Rank whose output is printed, of a job on several slots.")
    ] = 0,
    server: Server = None,
    data: Data = None,
) -> None:
    """Print the output of a job, from every node it ran on.

    **Examples:** `hopyard logs 7`, `hopyard logs -f digits 7`, `hopyard logs digits 7 --rank 1`
    """
    from contextlib import aclosing

    from hopyard.cli.connect import find_with_job, where, with_client
    from hopyard.cli.options import experiment_and_job
    from hopyard.cli.output import say

    experiment, job = experiment_and_job(names, named)

    async def read(client: AsyncClient) -> None:
        chosen = await find_with_job(client, experiment, job, "hopyard logs")
        node, printed = None, False
        async with aclosing(client.logs(chosen, job, follow=follow, rank=rank)) as chunks:
            async for chunk in chunks:
                if node is not None and chunk.node != node:
                    say(f"--- on {chunk.node}")
                node, printed = chunk.node, True
                sys.stdout.buffer.write(chunk.data)
                sys.stdout.buffer.flush()
        if not printed:
            say(_without_output(await client.job(chosen, job), rank, where(server, data)))

    with_client(server, data, "hopyard logs", read, read_only=True)


def _without_output(job: JobRow, rank: int, where: str) -> str:
    """Return a message for a job without output, with the command that shows its reports if it has any.

    Args:
        job: The job.
        rank: The rank whose output was read.
        where: The options with which a command finds the same cluster, with a leading blank; empty: none needed.
    """
    whose = f"rank {rank} of job {job.id}" if rank else f"job {job.id}"
    message = f"{whose} wrote no output" if job.state.ended else f"{whose} has written no output so far"
    return f"{message}; its reports: hopyard curve {job.experiment} --job {job.id}{where}" if job.position else message


def download(
    experiment: Experiment = None,
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB]", help="A job. [default: the best one]", show_default=False, autocompletion=complete_job
        ),
    ] = None,
    named: Job = None,
    to: Annotated[
        Path | None, typer.Option("-o", "--to", metavar="DIR", help="The folder to create.", show_default=False)
    ] = None,
    which: Annotated[
        Literal["best", "newest"],
        typer.Option("--which", help="The snapshot at the job's best position, or its newest."),
    ] = "best",
    server: Server = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Download a snapshot into a folder; by default the best one.

    The default is the snapshot of the best job at its best position. Its hash is verified. Without -o, the folder is
    created here, named after the experiment, the job and the position. It must not exist yet.

    **Examples:** `hopyard download -o best`, `hopyard download digits 7 --which newest`
    """
    from hopyard.cli.connect import find, with_client
    from hopyard.cli.errors import WrongUse
    from hopyard.cli.output import emit, emit_json, say

    if job and named:
        raise WrongUse(f"found two jobs, {job} and --job {named}; one snapshot is fetched at a time")

    async def fetch(client: AsyncClient) -> Download:
        chosen = await find(client, experiment)
        return await client.download(chosen, job or named, to=to, which=which)

    got = with_client(server, data, "hopyard download", fetch, read_only=True)
    if json:
        emit_json(got)
    else:
        say(f"job {got.job} at position {got.position}{_beside_best(got)}, SHA-256 {got.sha256}")
        emit(str(got.folder))


def _beside_best(got: Download) -> str:
    """Return a remark if the downloaded snapshot is not the one at the job's best position. Empty: it is, or nothing was reported."""
    from hopyard._common import formatting

    if got.best_position is None or got.position == got.best_position:
        return ""
    there = f"{got.metric} {formatting.number(got.value)} there; " if got.value is not None else ""
    gone = ", has no snapshot" if got.best_missing else ""
    return f" ({there}the best, {formatting.number(got.best_value)} at {got.best_position}{gone})"
