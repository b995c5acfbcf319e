"""Commands that query a cluster: experiments, jobs, nodes, best, curve.

Tables are imported only to print them: `--json` is for programs, which may call commands often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hopyard.cli.options import Data, Experiment, ExperimentAndJob, Job, Json, Server, Watch

if TYPE_CHECKING:
    from pathlib import Path

    from hopyard.cli.live.repetition import Drawing
    from hopyard.client.async_client import AsyncClient
    from hopyard.client.types import Experiment as ExperimentValue
    from hopyard.client.types import Job as JobValue

_PANEL = "Look"


def register(app: typer.Typer) -> None:
    """Add the commands `experiments`, `jobs`, `best`, `curve` and `nodes` to the command line `app`."""
    for command in (experiments, jobs, best, curve, nodes):
        app.command(rich_help_panel=_PANEL)(command)


def experiments(watch: Watch = False, server: Server = None, data: Data = None, json: Json = False) -> None:
    """List the experiments, newest first.

    If no cluster runs, those that were running when their cluster ended are INTERRUPTED.

    **Examples:** `hopyard experiments --watch`, `hopyard experiments --json | jq '.[].id'`
    """
    from hopyard.cli.connect import with_client
    from hopyard.cli.output import emit, emit_json, width

    if watch:
        _watch_experiments(server, data, json)
        return
    found = with_client(server, data, "hopyard experiments", lambda client: client.experiments(), read_only=True)
    if json:
        emit_json(found)
    else:
        from hopyard.cli.tables import experiments_table

        emit(experiments_table(found, width()))


def _watch_experiments(server: str | None, data: Path | None, json: bool) -> None:
    from hopyard.cli.connect import with_client
    from hopyard.cli.live.repetition import check_watch, repeat
    from hopyard.cli.output import width
    from hopyard.cli.tables import experiments_table

    check_watch(True, json)

    async def ask(client: AsyncClient) -> None:
        async def draw() -> Drawing:
            return experiments_table(await client.experiments(), width()), not client.live

        await repeat(draw)

    with_client(server, data, "hopyard experiments", ask, read_only=True)


def jobs(
    experiment: Experiment = None, watch: Watch = False, server: Server = None, data: Data = None, json: Json = False
) -> None:
    """List an experiment's jobs, the best first.

    With --watch until the experiment has ended; in a terminal that is the live view of `hopyard run`, whose key `?` lists
    the others, and q leaves it while the experiment continues.

    **Examples:** `hopyard jobs digits`, `hopyard jobs digits --watch`
    """
    from hopyard.cli.connect import find, where, with_client
    from hopyard.cli.output import emit, emit_json, fills_terminal, width

    async def ask(client: AsyncClient) -> None:
        chosen = await find(client, experiment)
        found = await client.jobs(chosen)
        if json:
            emit_json(found)
            return
        from hopyard.cli.tables import jobs_table

        if not watch:
            emit(jobs_table(chosen, found, width=width()))
            return
        if client.live and not chosen.state.ended and fills_terminal():
            from hopyard.cli.commands.inspect.job_watch import watch_jobs

            await watch_jobs(client, chosen, where(server, data))
            return
        from hopyard.cli.live.repetition import repeat

        async def draw() -> Drawing:
            # The experiment first: after its end its jobs do not change.
            present = await client.get(chosen)
            shown = jobs_table(present, await client.jobs(present), width=width())
            return shown, present.state.ended or not client.live

        await repeat(draw)

    if watch:
        from hopyard.cli.live.repetition import check_watch

        check_watch(watch, json)
    with_client(server, data, "hopyard jobs", ask, read_only=True)


def nodes(watch: Watch = False, server: Server = None, data: Data = None, json: Json = False) -> None:
    """List a running cluster's nodes, and what their slots do.

    The state of a node has its age: UP, DRAINING and DRAINED (`hopyard drain`), LEAVING (its agent is stopping), LOST. A
    line below the table says why a node is not UP. Nodes with GPUs also show model, memory in use and utilization of each
    GPU, as their agents last measured them.

    **Examples:** `hopyard nodes --server gpu1:4650`, `hopyard nodes --watch`, `hopyard nodes --json | jq '.[].gpus'`
    """
    import asyncio

    from hopyard.cli.connect import stopped_data_dir, with_client
    from hopyard.cli.output import emit, emit_json

    if watch:
        from hopyard.cli.live.repetition import check_watch

        check_watch(watch, json)

    idle = asyncio.run(stopped_data_dir(server, data))
    if idle is not None:
        # The nodes stored in the directory are not running.
        if json:
            emit_json([])
        else:
            emit(f"no cluster runs in {idle}, so it has no nodes; `hopyard up` or `hopyard resume` starts it")
        return
    if watch:
        _watch_nodes(server, data)
        return
    found = with_client(server, data, "hopyard nodes", lambda client: client.nodes())
    if json:
        emit_json(found)
    else:
        from hopyard.cli.tables import nodes_table

        emit(nodes_table(found))


def _watch_nodes(server: str | None, data: Path | None) -> None:
    from hopyard.cli.connect import with_client
    from hopyard.cli.live.repetition import repeat
    from hopyard.cli.tables import nodes_table

    async def ask(client: AsyncClient) -> None:
        async def draw() -> Drawing:
            return nodes_table(await client.nodes()), False

        await repeat(draw)

    with_client(server, data, "hopyard nodes", ask)


def best(experiment: Experiment = None, server: Server = None, data: Data = None, json: Json = False) -> None:
    """Show the best job and its hyperparameters.

    **Example:** `hopyard best digits --json | jq .hyperparameters`
    """
    from hopyard.cli.connect import find, with_client
    from hopyard.cli.output import emit, emit_json

    async def ask(client: AsyncClient) -> None:
        chosen = await find(client, experiment)
        job = await _best(client, chosen)
        if json:
            emit_json(job)
        else:
            from hopyard.cli.tables import best_text

            emit(best_text(chosen, job))

    with_client(server, data, "hopyard best", ask, read_only=True)


async def _best(client: AsyncClient, chosen: ExperimentValue) -> JobValue:
    from hopyard.client.display.outcome import metric_error
    from hopyard.errors import NotFound

    job = await client.best(chosen)
    if job is None:
        trouble = await metric_error(client, chosen)
        why = trouble or f"no job has reported {chosen.metric.name} yet"
        raise NotFound(f"{chosen.name} ({chosen.id}) has no best job: {why}")
    return job


def curve(
    names: ExperimentAndJob = None,
    named: Job = None,
    metric: Annotated[
        str | None, typer.Option("--metric", help="A metric's name. [default: the experiment's]", show_default=False)
    ] = None,
    server: Server = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Plot a job's metric over its positions.

    Without arguments, the curve is that of the newest experiment's best job. Below the curve of a forked job is a table
    of the jobs that trained each part of it, with their hyperparameters.

    **Examples:** `hopyard curve`, `hopyard curve 7`, `hopyard curve digits 7 --metric loss`, `hopyard curve 7 --json`
    """
    from hopyard.cli.connect import find, find_with_job, with_client
    from hopyard.cli.options import experiment_and_job
    from hopyard.cli.output import emit, emit_json
    from hopyard.cli.tables import curve_text, lineage, lineage_table
    from hopyard.client.display.outcome import metric_trouble, metrics_seen
    from hopyard.errors import NotFound

    experiment, given = experiment_and_job(names, named) if names or named is not None else (None, None)

    async def ask(client: AsyncClient) -> None:
        if given is not None:
            chosen = await find_with_job(client, experiment, given, "hopyard curve")
            one = await client.job(chosen, given)
        else:
            chosen = await find(client, experiment)
            one = await _best(client, chosen)
        job = one.id
        points = await client.curve(chosen, job, metric)
        seen = {} if points else metrics_seen(await client.statistics(chosen, job))
        if seen:
            trouble = metric_trouble(metric or chosen.metric.name, seen)
            raise NotFound(f"job {job} of {chosen.name} ({chosen.id}): {trouble}")
        origin = lineage({other.id: other for other in await client.jobs(chosen)}, one) if one.parent else []
        if json:
            emit_json(
                {
                    "experiment": chosen.id,
                    "job": job,
                    "metric": metric or chosen.metric.name,
                    "points": points,
                    "lineage": origin,
                }
            )
        else:
            emit(curve_text(chosen, one, metric or chosen.metric.name, points))
            if origin:
                emit(lineage_table(origin))

    with_client(server, data, "hopyard curve", ask, read_only=True)
