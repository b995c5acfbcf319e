"""The command `hopyard events`, which shows the events of an experiment as text."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hopyard._common import formatting
from hopyard.cli.completion import complete_job
from hopyard.cli.options import Data, Experiment, Json, Server
from hopyard.cli.options import Job as NamedJob

if TYPE_CHECKING:
    from hopyard_engine.explain.story import StoryLine


def command(
    experiment: Experiment = None,
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB]", help="Only what concerns this job.", show_default=False, autocompletion=complete_job
        ),
    ] = None,
    named: NamedJob = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Continue until the experiment ends.")] = False,
    server: Server = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Show what happened in an experiment, or to one job.

    One line for each event, as text. Stored snapshots are shown with --json only.

    **Examples:** `hopyard events digits`, `hopyard events digits 7`, `hopyard events digits -f`
    """
    asyncio.run(tell(experiment, job or named, follow, server, data, json))


async def tell(
    given: str | None, job: str | None, follow: bool, server: str | None, data: Path | None, json: bool
) -> None:
    """Perform the command: print the events of an experiment.

    Args:
        given: The experiment's id or name; None: the newest experiment.
        job: The id of a job, to print only the events that concern it; None: all events.
        follow: Print new events as they arrive, until the experiment ends.
        server: Address of a running cluster's scheduler; None: the cluster is found by `data`.
        data: Data folder of a cluster; None: the default folder.
        json: Print one JSON document instead of lines; with `follow`, when the experiment has ended.

    Raises:
        NotFound: The experiment or the job does not exist.
    """
    from hopyard.cli.output import emit_json
    from hopyard.errors import NotFound
    from hopyard_engine.explain.story import Story
    from hopyard_tools.commands.journal_source import opened

    story, lines, told = Story(), [], False

    def over() -> bool:
        return story.experiment is not None and story.experiment.state.ended

    async with opened(server, data, given, "hopyard events") as source:
        width = len(str(await source.length()))
        async with aclosing(source.follow(over) if follow else source.read()) as events:
            async for _, event in events:
                line: StoryLine | None = story.tell(event)
                if line is not None and job is not None:
                    line = line.about(job)
                if line is None:
                    continue
                told = True
                if json:
                    lines.append(_plain(line))
                elif not line.routine:
                    sys.stdout.write(_shown(line, width) + "\n")
                    if follow:
                        sys.stdout.flush()
    if job is not None and not told:
        stream, own = story.experiment, source.experiment.id
        jobs = (
            ", ".join(name for name, one in stream.jobs.items() if one.experiment.id == own)
            if stream is not None
            else ""
        )
        raise NotFound(f"experiment {source.experiment.id} has no job {job!r}; it has {jobs or 'none'}")
    if json:
        emit_json({"experiment": source.experiment.id, "job": job, "events": lines})


def _shown(line: StoryLine, width: int) -> str:
    at = formatting.moment(line.at, "%m-%d %H:%M:%S.%f")
    return f"{line.number:>{width}}  {at:.18}  {formatting.printable(line.text)}"


def _plain(line: StoryLine) -> dict[str, Any]:
    return {"event": line.number, "at": line.at, "kind": line.kind, "jobs": line.jobs, "text": line.text}
