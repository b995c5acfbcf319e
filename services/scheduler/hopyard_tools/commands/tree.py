"""The command `hopyard tree`, which shows the stage tree of an experiment.

A stage is a range of positions that the same trials train in the same way. A trial is the training of one
configuration.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hopyard.cli.completion import complete_job
from hopyard.cli.options import Data, Experiment, Json, Server
from hopyard.policy.vocabulary import ExperimentId
from hopyard_tools.commands.policy_queries import At

if TYPE_CHECKING:
    from hopyard.plots.data.stages import Tree
    from hopyard_tools.commands.policy_queries import ExperimentMoment

_LINES: Final = 40


def command(
    experiment: Experiment = None,
    to: Annotated[
        Path | None,
        typer.Option("-o", "--to", metavar="FILE", help="Draw it instead: .svg or .png.", show_default=False),
    ] = None,
    at: At = None,
    job: Annotated[
        str | None,
        typer.Option(
            "--job",
            metavar="JOB",
            help="Only one trial's way, and what branches off it.",
            show_default=False,
            autocompletion=complete_job,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="A line for every stage, however many there are.")] = False,
    server: Server = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Show what trials have in common: the stage tree.

    A stage is a range of positions that the same trials train in the same way; where their hyperparameters diverge, the
    tree branches. A stage is **done**, **running** (on which slot), **waiting** for one, or **not wanted** (yet, or
    any more). For policies that share training (stage_tree), now or at any event: the policy is replayed up to that
    event and queried.

    **trials** is the number of trials that pass a stage; **reused** the number that have its results from another
    trial's run; **time** the measured time (~: expected); **run** the job that trained or trains it, and where;
    **trained for** the trials that are complete at its end; **from here on** the values in which the branches differ.

    Of large trees the largest branches are shown; **--all** shows every stage.

    **Examples:** `hopyard tree digits`, `hopyard tree digits --at 120`, `hopyard tree digits --job 7`,
    `hopyard tree digits -o tree.svg`, `hopyard tree --json | jq .totals`
    """
    if not asyncio.run(show(experiment, to, at, job, everything, server, data, json)):
        raise typer.Exit(1)


async def show(
    given: str | None,
    to: Path | None,
    at: str | None,
    job: str | None,
    everything: bool,
    server: str | None,
    data: Path | None,
    json: bool,
) -> bool:
    """Perform the command: print or draw the stage tree of an experiment.

    A stage is a range of positions that the same trials train in the same way.

    Args:
        given: The experiment's id or name; None: the newest experiment.
        to: The file to draw, .svg or .png; None: print the tree.
        at: The event or time to show, as the user gave it; None: the present.
        job: The id of a job, to print only the path of its trial and its branches; None: all.
        everything: Print one line for each stage. False: in a large tree, one line may represent several stages.
        server: Address of a running cluster's scheduler; None: the cluster is found by `data`.
        data: Data folder of a cluster; None: the default folder.
        json: Print one JSON document instead of text.

    Returns:
        True if the policy has a stage tree. False: a message was printed that it has none (with `json`: the document
        states it).

    Raises:
        NotFound: The experiment, the job or the cluster does not exist.
        InvalidInput: The policy cannot be created on this computer or failed, or the plot cannot be written.
    """
    from hopyard.cli.output import emit, emit_json, say, width
    from hopyard.errors import NotFound
    from hopyard.plots import need_writable, save
    from hopyard_engine.replay import parse_until
    from hopyard_tools.commands.policy_queries import moment

    limit = parse_until(at, "--at") if at is not None else None
    if to is not None:
        need_writable(to)
    found = await moment(given, limit, "hopyard tree", server, data, quiet=json)
    tree = tree_at(found)
    if tree is not None and job is not None and not any(job in stage.trials for stage in tree.stages):
        raise NotFound(
            f"experiment {found.name} has no job {job!r} with a configuration yet; `hopyard jobs {found.name}`"
        )
    if json:
        emit_json(document(found, tree))
    if tree is None:
        if not json:
            say(
                f"{found.name}: its policy {found.policy} trains every trial for itself, so there is no tree; "
                f"`hopyard jobs {found.name}` shows where its jobs are"
            )
    elif not tree.stages:
        if not json:
            say(f"{found.name}: after event {found.driven.number} it has no trials yet")
    elif to is not None:
        save(tree, to)
        if not json:
            emit(str(to))
    elif not json:
        from hopyard_tools.commands.tree_text import shown

        emit(shown(tree, _title(found), None if everything else _LINES, job, width()))
    return tree is not None


def _title(found: ExperimentMoment) -> str:
    """Return the title of the tree: the event that it shows, and in a group the slot time that is charged to the experiment.

    Args:
        found: The experiment after this event.
    """
    from hopyard._common.formatting import short_time

    stream = found.driven.experiment
    if stream is None or len(stream.experiments) == 1:
        return found.title
    return f"{found.title}; {short_time(stream.experiments[ExperimentId(found.name)].slot_seconds)} of slots billed to {found.name}"


def tree_at(found: ExperimentMoment) -> Tree | None:
    """Return an experiment's stage tree after an event of its journal; None: its policy has no stage tree.

    The tree is empty if no event up to this one has called the policy.

    Args:
        found: The experiment after the event.

    Raises:
        InvalidInput: The policy cannot be created on this computer, or failed.
    """
    from hopyard.plots.data.stages import Tree, tree_of
    from hopyard_scheduler.experiments.program import program_of

    standing = found.standing
    if standing is None:
        return Tree("position", (), {})
    stream, host = standing
    stages = host.stages(stream, found.at)
    if stages is None:
        return None
    configurations = {
        job.id: job.hyperparameters
        for job in stream.jobs.values()
        if job.experiment.id == found.name and job.hyperparameters is not None
    }
    return tree_of(stages, configurations, program_of(stream.founder.payload).spec.unit)


def document(found: ExperimentMoment, tree: Tree | None) -> dict[str, Any]:
    """Return the stage tree as a JSON document.

    Args:
        found: The experiment after the event that the tree shows.
        tree: The tree; None: the policy has none.
    """
    from hopyard.cli.output import plain
    from hopyard.plots.data.stages import totals

    stream = found.driven.experiment
    return {
        "experiment": found.name,
        "policy": found.policy,
        "event": found.driven.number,
        "at": found.at,
        "decisions_equal": found.driven.first is None,
        "unit": tree.unit if tree is not None else None,
        "totals": totals(tree.stages) if tree is not None else None,
        "slot_seconds": stream.experiments[ExperimentId(found.name)].slot_seconds if stream is not None else 0.0,
        "stages": [{**plain(stage), "values": tree.values.get(stage.number, {})} for stage in tree.stages]
        if tree is not None
        else None,
    }
