"""Implements `run`, `resume` and `extend --watch` with a `RunSession`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from hopyard._runtime.gpus import AUTOMATIC, GpuOptions
from hopyard.cli.commands.experiments.hints import tell_changed_code, unused_note
from hopyard.cli.commands.experiments.local_slots import SlotWishes
from hopyard.cli.commands.experiments.preflight import check_policy, policy_notes, sharing_note
from hopyard.cli.commands.experiments.requirements import check_imports, check_plugins
from hopyard.cli.commands.inspect.trace_export import TraceFile
from hopyard.cli.commands.session.run_session import RunSession
from hopyard.cli.connect import choose, connected, find_unfinished, stopped_data_dir
from hopyard.cli.output import say
from hopyard.client.async_client import AsyncClient
from hopyard.client.local_cluster.data_dir_lock import has_data
from hopyard.client.submission import Submission, left_out_note, prepare
from hopyard.client.types import Experiment, ExperimentState
from hopyard.errors import NotFound
from hopyard.spec import parse_spec


def run_file(
    file: Path,
    *,
    folder: Path | None,
    slots: int | None,
    gpus: GpuOptions = AUTOMATIC,
    server: str | None,
    data: Path | None,
    json: bool,
    traces: Path | None = None,
) -> int:
    """Run `hopyard run` and return the exit code of `RunSession.follow`.

    Args:
        file: The experiment file.
        folder: Folder of the training code; None: the folder of the file.
        slots: Number of slots of a new cluster; None: one per GPU, without GPUs that in the file, else as many as the CPUs of
            this computer suffice for.
        gpus: The options for the GPUs of a new cluster.
        server: Address of the scheduler, the value of --server; None: not given.
        data: The data directory, the value of --data; None: not given.
        json: Whether to print the result as JSON.
        traces: The file to write the traces of the experiment to at the end; None: no traces.

    Raises:
        SpecError: The experiment file is invalid.
        InvalidInput: A file is missing or unreadable.
    """
    # Before anything is started, so that mistakes in the file are reported immediately.
    submission: Submission = prepare(file, folder)
    trace_file = TraceFile(traces) if traces is not None else None
    for note in (unused_note(submission.spec), sharing_note(submission)):
        if note:
            say(note)
    if note := left_out_note(submission):
        say(f"note: {note}")
    address, directory = choose(server, data)
    told: list[str] = []
    if address is None:
        check_policy(submission)
        check_plugins(submission)
        check_imports(submission)
        told = policy_notes(submission)
        for note in told:
            say(note)

    resources = submission.spec.resources
    wishes = SlotWishes(slots, gpus, resources.slots, resources.per_job.cpus, resources.per_job.gpus)

    async def begin(client: AsyncClient) -> Experiment:
        experiment = await client.create(submission)
        if experiment.note and f"note: {experiment.note}" not in told:
            say(f"note: {experiment.note}")
        return experiment

    async def main() -> int:
        session = RunSession(
            address, directory, wishes, "hopyard run", eager=True, submission=submission, traces=trace_file
        )
        return await session.follow(begin, submission.spec.name, json)

    return asyncio.run(main())


def resume_experiment(
    given: str | None,
    *,
    slots: int | None,
    gpus: GpuOptions = AUTOMATIC,
    server: str | None,
    data: Path | None,
    json: bool,
) -> int:
    """Run `hopyard resume` and return the exit code of `RunSession.follow`.

    A paused experiment is resumed, then the command shows it until it ends or is suspended. If no cluster runs in the data directory,
    the command starts one in which only this experiment trains: it pauses all other running ones and prints their names. In a cluster
    that runs already, other experiments are not changed. If the experiment has ended, no job is started: the command prints that it
    has ended (with `json` also its result), and the exit code is 1 if it failed, else 0.

    Args:
        given: Id or name of the experiment; None: the newest paused experiment, else the newest unfinished one.
        slots: Number of slots of a new cluster; None: as `run_file` chooses it.
        gpus: The options for the GPUs of a new cluster.
        server: Address of the scheduler, the value of --server; None: not given.
        data: The data directory, the value of --data; None: not given.
        json: Whether to print the result as JSON.

    Raises:
        NotFound: There is no such experiment, or no cluster has run in the data directory.
    """
    address, directory = choose(server, data)
    need_cluster(address, directory, "resume")

    async def begin(client: AsyncClient) -> Experiment:
        experiment, others = await find_unfinished(client, given)
        if others:
            left = ", ".join(f"{one.name} ({one.id}, {_rests(one, session.owns_cluster)})" for one in others)
            say(f"continuing {experiment.name} ({experiment.id}); also unfinished: {left}: hopyard resume ID")
        if not experiment.state.ended:
            await tell_changed_code(client, experiment)
        if experiment.state in (ExperimentState.PAUSED, ExperimentState.PAUSING):
            return await client.resume(experiment)
        return experiment

    session = RunSession(address, directory, SlotWishes(slots, gpus), "hopyard resume")

    async def main() -> int:
        if await stopped_data_dir(server, data) is not None:
            async with connected(server, data, purpose="hopyard resume", read_only=True) as client:
                stored, _ = await find_unfinished(client, given)
            if not stored.state.ended:
                check_plugins(Submission("", stored.id, parse_spec(stored.spec), None))
        return await session.follow(begin, given or "", json)

    return asyncio.run(main())


def extend_experiment(
    begin: Callable[[AsyncClient], Coroutine[Any, Any, Experiment]],
    source: str,
    *,
    server: str | None,
    data: Path | None,
    json: bool,
) -> int:
    """Run `hopyard extend --watch` and return the exit code of `RunSession.follow`.

    Args:
        begin: Extends the experiment with a client, and returns it.
        source: Name of the experiment in messages until its state is known.
        server: Address of the scheduler, the value of --server; None: use the data directory.
        data: The data directory, the value of --data; None: `./hopyard-data`.
        json: Whether to print the result as JSON.
    """
    address, directory = choose(server, data)
    need_cluster(address, directory, "extend")

    async def main() -> int:
        return await RunSession(address, directory, SlotWishes(), "hopyard extend").follow(begin, source, json)

    return asyncio.run(main())


def need_cluster(address: str | None, directory: Path, action: str) -> None:
    """Raise NotFound unless a scheduler's address is given or a cluster has run in the data directory.

    `action` is the verb of the message, such as "resume".
    """
    if address is None and not has_data(directory):
        raise NotFound(
            f"{directory}: no cluster has run here, so there is nothing to {action}; name another with --data"
        )


def _rests(experiment: Experiment, owned: bool) -> str:
    """Return the state to print for an unfinished experiment that the command does not continue.

    Args:
        experiment: That experiment.
        owned: Whether the command has started the cluster, in which it pauses all other experiments; the result is then PAUSED.
    """
    return ExperimentState.PAUSED.value if owned else experiment.state.value
