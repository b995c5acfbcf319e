"""The commands `pause`, `stop`, `extend`, `retry`, `resend` and `wait`. `resume` is in `run.py`."""

from __future__ import annotations

import time as clock
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hopyard.cli.completion import complete_experiment_or_job
from hopyard.cli.options import Data, Experiment, Job, Json, Server

if TYPE_CHECKING:
    from hopyard.client.async_client import AsyncClient
    from hopyard.client.types import Experiment as ExperimentValue
    from hopyard.client.types import Job as JobValue

_PANEL = "Act"


def register(app: typer.Typer) -> None:
    """Add the commands `pause`, `stop`, `extend`, `retry`, `resend` and `wait` to the command line `app`."""
    for command in (pause, stop, extend, retry, resend, wait):
        app.command(rich_help_panel=_PANEL)(command)


def pause(
    experiment: Experiment = None, job: Job = None, server: Server = None, data: Data = None, json: Json = False
) -> None:
    """Suspend an experiment, or one job of it.

    Its jobs save their state and leave their slots; `hopyard resume` continues. The command returns when the
    experiment is paused, and fails after 120 s. With --job, only this job is suspended. The policy cannot start it
    until `hopyard resume --job`; other jobs continue. If a cluster runs, the command waits up to 120 s for the job.

    **Examples:** `hopyard pause digits`, `hopyard pause digits --job 7`
    """
    from hopyard.cli.commands.session.run_session import SUSPEND_SECONDS
    from hopyard.cli.connect import find, with_client
    from hopyard.client.types import ExperimentState

    if job is not None:
        from hopyard.cli.commands.experiments.job_actions import pause_one

        pause_one(experiment, job, server, data, json)
        return

    async def act(client: AsyncClient) -> ExperimentValue:
        chosen = await find(client, experiment)
        present = await client.pause(chosen)
        if present.state.ended or present.state is ExperimentState.PAUSED:
            return present
        return await client.wait(present, SUSPEND_SECONDS, until={ExperimentState.PAUSED})

    _tell(with_client(server, data, "hopyard pause", act), json)


def stop(
    experiment: Experiment = None, job: Job = None, server: Server = None, data: Data = None, json: Json = False
) -> None:
    """End an experiment, or one job of it.

    Its jobs are terminated. Their reports and the best job's snapshot are kept. `hopyard extend` continues a stopped
    experiment; a stopped job never trains again. The command does not wait for the end of
    running jobs.

    **Examples:** `hopyard stop digits`, `hopyard stop digits --job 7`
    """
    from hopyard.cli.connect import find, with_client

    if job is not None:
        from hopyard.cli.commands.experiments.job_actions import stop_one

        stop_one(experiment, job, server, data, json)
        return

    async def act(client: AsyncClient) -> ExperimentValue:
        return await client.stop(await find(client, experiment))

    _tell(with_client(server, data, "hopyard stop", act), json)


def extend(
    experiment: Experiment = None,
    jobs: Annotated[
        int, typer.Option("--jobs", min=0, metavar="N", help="Number of additional jobs.", show_default=False)
    ] = 0,
    max_iterations: Annotated[
        int,
        typer.Option(
            "--max-iterations",
            min=0,
            metavar="M",
            help="The new total length of a job; completed jobs continue up to it.",
            show_default=False,
        ),
    ] = 0,
    time: Annotated[
        str | None,
        typer.Option("--time", metavar="TIME", help="Additional time: 30s, 10m, 1h30m.", show_default=False),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Also run and watch it, as `hopyard resume` does.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Train again without asking what no snapshot has.")] = False,
    server: Server = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Give an experiment more jobs, iterations or time.

    --jobs and --time are added to the current limits; --max-iterations is the new total. An ended experiment continues.
    --max-iterations also continues the completed jobs, and --time the jobs that the time limit stopped. At least one
    of the three is needed. If jobs that continue have no snapshot of their progress, the command says how much would be
    trained again, and asks.

    **Examples:** `hopyard extend digits --jobs 10 --watch`, `hopyard extend digits --max-iterations 40 --time 10m`
    """
    import asyncio
    import sys

    from hopyard.cli.commands.experiments.hints import next_step
    from hopyard.cli.commands.experiments.lost_progress import LostProgress, of_extension
    from hopyard.cli.commands.experiments.session_commands import extend_experiment
    from hopyard.cli.connect import find, stopped_data_dir, where, with_client
    from hopyard.cli.errors import WrongUse
    from hopyard.cli.output import emit_json, plain, say
    from hopyard.client.types import ExperimentState

    seconds = _seconds(time)
    if not (jobs or max_iterations or seconds):
        raise WrongUse("extend by --jobs N, --max-iterations M or --time TIME")

    async def lost(client: AsyncClient) -> LostProgress:
        return of_extension(await client.jobs(await find(client, experiment)), max_iterations, seconds)

    # Asked before any cluster of this command starts, so that Ctrl-C ends the question.
    again = with_client(server, data, "hopyard extend", lost, read_only=True)
    if again.jobs:
        say(f"{'note' if yes else 'warning'}: {again}")
        if not yes and (json or not sys.stdin.isatty()):
            raise WrongUse("nobody can be asked here: give --yes to train it again")
        if not yes and not typer.confirm("Extend the experiment?", err=True):
            say("nothing was changed")
            return

    async def act(client: AsyncClient) -> ExperimentValue:
        chosen = await find(client, experiment)
        extended = await client.extend(chosen, jobs=jobs, max_iterations=max_iterations, seconds=seconds)
        if watch and extended.state in (ExperimentState.PAUSED, ExperimentState.PAUSING):
            return await client.resume(extended)
        return extended

    if watch:
        raise typer.Exit(extend_experiment(act, experiment or "", server=server, data=data, json=json))
    idle = asyncio.run(stopped_data_dir(server, data))
    extended = with_client(server, data, "hopyard extend", act)
    if json:
        emit_json({**plain(extended), "lost_progress": again})
        return
    _tell(extended, json)
    if hint := next_step(extended, idle, where(server, data), extended=True):
        say(hint)


def retry(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[EXPERIMENT [JOB...]]",
            help="Experiment [default: the newest] and failed jobs [default: all].",
            show_default=False,
            autocompletion=complete_experiment_or_job,
        ),
    ] = None,
    server: Server = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Let failed jobs of an experiment start again.

    They continue from their newest snapshots, or else begin again, and their failures are counted from zero. An ended
    experiment continues, as after `hopyard extend`. A job that has not failed is refused, and then no job starts again.

    **Examples:** `hopyard retry digits`, `hopyard retry digits 3 7`
    """
    import asyncio

    from hopyard.cli.commands.experiments.hints import next_step, tell_changed_code
    from hopyard.cli.commands.experiments.lost_progress import LostProgress, of_jobs
    from hopyard.cli.connect import find, stopped_data_dir, where, with_client
    from hopyard.cli.output import emit_json, say

    async def act(client: AsyncClient) -> tuple[ExperimentValue, list[JobValue], LostProgress]:
        words = names or []
        chosen = await find(client, words[0] if words else None)
        before = {job.id: job for job in await client.jobs(chosen)}
        retried, jobs = await client.retry(chosen, words[1:])
        await tell_changed_code(client, retried)
        return retried, jobs, of_jobs(before[job.id] for job in jobs if job.id in before)

    idle = asyncio.run(stopped_data_dir(server, data))
    retried, jobs, again = with_client(server, data, "hopyard retry", act)
    if json:
        emit_json({"experiment": retried, "jobs": jobs, "lost_progress": again})
        return
    say(f"retried {'job' if len(jobs) == 1 else 'jobs'} {', '.join(job.id for job in jobs)}")
    if again.jobs:
        say(f"note: {again}")
    _tell(retried, json)
    if hint := next_step(retried, idle, where(server, data), extended=True):
        say(hint)


def resend(
    experiment: Experiment = None,
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FOLDER]",
            help="The folder with the code; default: a copy of a node agent in the data directory, else the current directory.",
            show_default=False,
        ),
    ] = None,
    server: Server = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Send the code of an experiment again.

    It is needed after all copies of the code were lost or damaged. The folder must contain the same files as when the
    experiment was created: the code is sent only if its hash is the recorded one. If the store has an undamaged copy,
    nothing is sent. `hopyard resume` then continues the experiment.

    **Examples:** `hopyard resend digits ~/code/digits`, `hopyard resend`
    """
    from hopyard._common import formatting
    from hopyard.cli.connect import choose, find, where, with_client
    from hopyard.cli.output import emit_json, say
    from hopyard.client.transfer import resend as transfer

    async def act(client: AsyncClient) -> tuple[ExperimentValue, transfer.Resent]:
        chosen = await find(client, experiment)
        address, place = choose(server, data)
        copies = [] if address else sorted(place.glob(f"agent*/.bundles/{chosen.bundle}.packed"))
        return chosen, await transfer.resend(client, chosen, folder, copies)

    chosen, sent = with_client(server, data, "hopyard resend", act)
    if json:
        emit_json({"experiment": chosen.id, "bundle": chosen.bundle, "sent_bytes": sent.size})
        return
    if sent.source is None:
        say(f"the store has an undamaged copy of the code of {chosen.name} ({chosen.id}); nothing is sent")
    else:
        say(f"sent the code of {chosen.name} ({chosen.id}) from {sent.source}: {formatting.size(sent.size)}")
    if not chosen.state.ended:
        say(f"continue it with: hopyard resume {chosen.id}{where(server, data)}")


def wait(
    experiment: Experiment = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0, metavar="SECONDS", help="Fail if the wait takes longer.")
    ] = None,
    server: Server = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Wait until an experiment has ended.

    Exit code 1 if it failed, its metric was never reported, or the timeout has passed. Without --timeout, the command
    does not wait for an experiment that only `hopyard resume` can continue: a paused one, or one with only paused jobs
    left. It never waits if no cluster runs in the data directory. In both cases it prints the command that
    continues the experiment, with exit code 1.

    **Example:** `hopyard wait digits --timeout 3600 && hopyard best digits`
    """
    import asyncio

    from hopyard.cli.connect import find, stopped_data_dir, where, with_client
    from hopyard.cli.errors import EXIT_FAILED
    from hopyard.cli.output import emit_json, say
    from hopyard.client.display.outcome import ended_error
    from hopyard.policy.vocabulary.reasons import NEEDS_A_PERSON, ReasonCode

    def tell_waiting(found: ExperimentValue) -> None:
        nobody = f", and no cluster runs in {idle}" if idle is not None else ""
        if found.reason_code in NEEDS_A_PERSON:
            nobody = f" ({found.reason}){nobody}"
        command = f"hopyard resume {found.id}"
        if idle is None and found.reason_code is ReasonCode.ONLY_PAUSED_JOBS:
            nobody, command = f": {found.reason}", f"{command} --job JOB"
        say(f"{found.name} ({found.id}) is {found.state.value}{nobody}: {command}{where(server, data)}")

    async def act(client: AsyncClient) -> tuple[ExperimentValue, str]:
        found, begin = await find(client, experiment), clock.monotonic()
        if idle is None:
            found = await _settled(client, found, timeout)
        if not found.state.ended:
            tell_waiting(found)
        if idle is None and timeout is not None and not found.state.ended:
            found = await client.wait(found, max(0.0, timeout - (clock.monotonic() - begin)))
        return found, await ended_error(client, found) if found.state.ended else ""

    idle = asyncio.run(stopped_data_dir(server, data))
    found, error = with_client(server, data, "hopyard wait", act, read_only=True)
    if json:
        emit_json(found)
    if error:
        say(f"error: {error}")
    elif found.state.ended and not json:
        _tell(found, json)
    if error or not found.state.ended:
        raise typer.Exit(EXIT_FAILED)


async def _settled(client: AsyncClient, experiment: ExperimentValue, seconds: float | None) -> ExperimentValue:
    """Wait until the experiment has ended or only a person can continue it, and return its newest state.

    The latter is the case if it is paused, or if all its unfinished jobs are paused.

    Args:
        client: The client of the cluster.
        experiment: The experiment.
        seconds: Maximum time to wait; None: no limit.

    Raises:
        TimedOut: `seconds` have passed.
    """
    import asyncio

    from hopyard.client.types import Experiment as Shown
    from hopyard.client.types import ExperimentState
    from hopyard.errors import TimedOut
    from hopyard.policy.vocabulary.reasons import ReasonCode

    present = experiment
    try:
        async with asyncio.timeout(seconds), aclosing(client.watch(experiment)) as changes:
            async for change in changes:
                if isinstance(change, Shown):
                    present = change
                    only_paused = present.reason_code is ReasonCode.ONLY_PAUSED_JOBS
                    if present.state.ended or present.state is ExperimentState.PAUSED or only_paused:
                        return present
    except TimeoutError as error:
        raise TimedOut(f"experiment {present.id}: still {present.state.value} after {seconds:g} s") from error
    return await client.get(experiment)


def _seconds(time: str | None) -> float:
    if time is None:
        return 0.0
    from hopyard.spec.units import option_seconds

    return option_seconds("--time", time)


def _tell(experiment: ExperimentValue, json: bool) -> None:
    from hopyard.cli.output import emit_json, say

    if json:
        emit_json(experiment)
    else:
        reason = f": {experiment.reason}" if experiment.reason else ""
        say(f"{experiment.name} ({experiment.id}) is {experiment.state.value}{reason}")
