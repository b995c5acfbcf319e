"""The command `hopyard replay`, which repeats the decisions of an experiment's policy and compares them with the recorded ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from hopyard.cli.completion import complete_job
from hopyard.cli.options import Data, Experiment, Json, Server

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hopyard_engine.core.events import Event
    from hopyard_engine.policy_host import Host
    from hopyard_engine.replay import JobLine, Replay, ReplayState, Until
    from hopyard_tools.commands.journal_source import JournalSource
    from hopyard_tools.projections.comparison import RowDifference
    from hopyard_tools.projections.stream_check import StreamCheck

_LONG = 2_000  # Number of events below which a progress bar would be too short to see.
_MOST_SHOWN = 20  # Differences of rows that are printed.


def command(
    experiment: Experiment = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="EVENT|TIME",
            help="Stop there and print the state: an event's number (120), a time since the start (90s, 2.5m), or ISO time.",
            show_default=False,
        ),
    ] = None,
    executed: Annotated[
        bool,
        typer.Option(
            "--execute", help="Train it again in the order of the journal, on this computer's CPUs, and compare."
        ),
    ] = False,
    job: Annotated[
        list[str] | None,
        typer.Option(
            "--job",
            metavar="JOB",
            help="With --execute: only this job, with what it went on from. May be given more than once.",
            show_default=False,
            autocompletion=complete_job,
        ),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(
            "--slots",
            min=1,
            max=1024,
            help="With --execute: how many runs train at a time; without it, as many as the CPUs hold.",
            show_default=False,
        ),
    ] = None,
    server: Server = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Repeat all decisions, or the training, and compare them.

    The experiment's policy is replayed from the journal, and the stored rows of the experiment, its jobs and their reports are
    compared with it. With `--execute` its jobs are trained again instead, with the
    recorded code, data, seeds and order, in a temporary cluster; then every report and every snapshot is compared, bit
    for bit. Exit code 1 if something differs; the first difference is shown.

    **Examples:** `hopyard replay digits`, `hopyard replay digits --until 120`, `hopyard replay digits --execute --job
    3`
    """
    from hopyard.cli.errors import WrongUse
    from hopyard_engine.replay import parse_until

    if executed:
        if until is not None:
            raise WrongUse("--until and --execute cannot be given together: --job says what is trained again")
        from hopyard_tools.commands.retrain import execute

        same = asyncio.run(_unless_interrupted(execute(experiment, job or (), slots, server, data, json)))
        raise typer.Exit(0 if same else 1)
    if job or slots:
        raise WrongUse(f"{'--job' if job else '--slots'} says what --execute trains; give that, too")
    limit = parse_until(until) if until is not None else None
    equal = asyncio.run(replay(experiment, limit, server, data, json))
    raise typer.Exit(0 if equal else 1)


async def _unless_interrupted(work: Coroutine[Any, Any, bool]) -> bool:
    """Run the coroutine `work` and return its result. On the first interrupt signal, cancel it, so that it ends its processes.

    Raises:
        Interrupted: The coroutine was cancelled because of an interrupt signal.
    """
    from hopyard.cli.interrupts import Interrupts

    with Interrupts() as interrupts:
        return await interrupts.unless(interrupts.first, work)


async def replay(given: str | None, until: Until | None, server: str | None, data: Path | None, json: bool) -> bool:
    """Perform the command: replay an experiment and print the comparison.

    Args:
        given: The experiment's id or name; None: the newest experiment.
        until: The event or time at which the replay stops; None: the end of the journal.
        server: Address of a running cluster's scheduler; None: the cluster is found by `data`.
        data: Data folder of a cluster; None: the default folder.
        json: Print one JSON document instead of text.

    Returns:
        True if all decisions are equal to the recorded ones, also if there were none up to `until`; and, without `until`, all rows that
        AppStat stores follow from the journal.

    Raises:
        NotFound: The experiment or the cluster does not exist.
        Unavailable: The policy runs in a separate process, which did not connect in time.
    """
    from hopyard.cli.output import emit, emit_json, say
    from hopyard_engine.replay import state_of
    from hopyard_tools.commands.journal_source import opened
    from hopyard_tools.projections.stream_check import check_stream

    checked: StreamCheck | None = None
    async with opened(server, data, given, "hopyard replay") as source:
        driven, at = await drive(source, until, quiet=json, dialled=True)
        if until is None:
            checked = await check_stream(source.stub, source.stream_name)
    stream, name = driven.experiment, source.experiment.id
    state = state_of(stream, driven.number, at) if stream is not None else None
    equal = driven.first is None and (checked is None or not (checked.differences or checked.damage))
    if json:
        emit_json({**document(name, driven, state), "rows": None if checked is None else _rows_document(checked)})
        return equal
    if driven.version_change:
        say(f"{name}: {driven.version_change}")
    say(verdict(name, driven))
    if driven.first is not None:
        emit(f"event {driven.first.event}, up-call {driven.first.up_call}\n  then: {driven.first.then}")
        emit(f"  now:  {driven.first.now}")
    if until is not None and state is not None and stream is not None:
        emit(state_table(state, stream.founder.created_at))
    if checked is not None:
        for line in rows_verdict(name, checked):
            say(line)
    return equal


async def drive(
    source: JournalSource, until: Until | None, *, quiet: bool, dialled: bool = False
) -> tuple[Replay, float]:
    """Replay an experiment on a new core (the state machine of the engine).

    Args:
        source: The experiment's journal.
        until: The event or time at which the replay stops; None: the end of the journal.
        quiet: Show no progress.
        dialled: Permit a policy that runs in a separate process, which then must connect to this process.

    Returns:
        The replay, and the time of the last replayed event in seconds since the Unix epoch; 0: no event was replayed.

    Raises:
        InvalidInput: The policy runs in a separate process, and `dialled` is False.
        Unavailable: The process of the policy did not connect in time.
    """
    from hopyard_engine.core import Core
    from hopyard_engine.policy_host.factory import host_of
    from hopyard_engine.replay import Replay
    from hopyard_scheduler.experiments.program import program_of

    hosts: list[Host] = []
    driven = Replay(Core(), lambda stream: hosts[0] if hosts else host_of(program_of(stream.founder.payload).spec))
    at, start = 0.0, 0.0
    total = await source.length()
    async with aclosing(source.read()) as events, AsyncExitStack() as stack:
        with _bar(total, quiet) as bar:
            async for number, event in events:
                start = start or event.at
                if until is not None and until.passed(number, event, start):
                    break
                if hosts:
                    await asyncio.to_thread(driven.take, event)
                else:
                    driven.take(event)
                if number == 1 and (host := await _from_afar(source, driven, stack, dialled)) is not None:
                    hosts.append(host)
                at = event.at
                if number % 256 == 0:
                    bar.reach(number)
    return driven, at


async def _from_afar(source: JournalSource, driven: Replay, stack: AsyncExitStack, dialled: bool) -> Host | None:
    """Return the experiment's policy if it runs in a separate process, else None.

    Args:
        source: The experiment's journal.
        driven: The replay, after the first event.
        stack: Closes the connection to the process in the end.
        dialled: Permit such a policy.

    Raises:
        InvalidInput: The policy runs in a separate process, and `dialled` is False.
    """
    from hopyard.cli.output import say
    from hopyard.errors import InvalidInput
    from hopyard_scheduler.experiments.program import program_of
    from hopyard_scheduler.policy_process import replay_server

    assert driven.experiment is not None
    name, program = driven.experiment.id, program_of(driven.experiment.founder.payload)
    if not program.spec.policy.remote:
        return None
    if not dialled:
        raise InvalidInput(
            f"{name}: its policy {program.spec.policy.label} runs in a separate process, which only hopyard replay can query"
        )

    async def journal() -> AsyncIterator[Event]:
        async for _, event in source.read():
            yield event

    return await stack.enter_async_context(replay_server.dialled(name, program, journal, source.stub, say))


def verdict(name: str, driven: Replay) -> str:
    """Return the result of a replay as one line for people.

    Args:
        name: The id of the experiment.
        driven: The replay.
    """
    from hopyard._common.formatting import count

    what = f"{name}: {count(driven.number, 'event')}, {count(driven.up_calls, 'up-call')} answered again"
    failures = f" ({count(driven.failures, 'recorded failure')} not compared)" if driven.failures else ""
    if driven.first is None:
        return f"{what}{failures}: every decision is the same"
    return f"{what}{failures}: event {driven.first.event} is the first that differs"


def rows_verdict(name: str, checked: StreamCheck) -> list[str]:
    """Return the result of the comparison of the stored rows with the journal, as lines for people.

    Args:
        name: The id of the experiment.
        checked: The comparison.
    """
    from hopyard._common.formatting import count

    if checked.damage:
        return [f"{name}: the stored rows are not compared: {checked.damage}"]
    if not checked.differences:
        return [f"{name}: {count(len(checked.rows), 'stored row')} compared: every one follows from the journal"]
    lines = [f"{name}: {count(len(checked.differences), 'difference')} between the stored rows and the journal"]
    lines += [f"  {difference}" for difference in checked.differences[:_MOST_SHOWN]]
    if len(checked.differences) > _MOST_SHOWN:
        lines.append(f"  {len(checked.differences) - _MOST_SHOWN} more")
    return [*lines, "hopyard doctor --rebuild writes the rows again from the journal, while no cluster runs"]


def _rows_document(checked: StreamCheck) -> dict[str, Any]:
    return {
        "count": len(checked.rows),
        "equal": not (checked.differences or checked.damage),
        "damage": checked.damage or None,
        "differences": [_fields(difference) for difference in checked.differences],
    }


def document(name: str, driven: Replay, state: ReplayState | None) -> dict[str, Any]:
    """Return the result of a replay as a JSON document.

    Args:
        name: The id of the experiment.
        driven: The replay.
        state: The state of the experiment after the last replayed event; None: no event was replayed.
    """
    first = driven.first
    return {
        "experiment": name,
        "events": driven.number,
        "up_calls": driven.up_calls,
        "failures": driven.failures,
        "version_change": driven.version_change or None,
        "decisions_equal": first is None,
        "first_difference": None
        if first is None
        else {
            "event": first.event,
            "at": first.at,
            "up_call": first.up_call,
            "recorded": first.then,
            "now": first.now,
            "text": first.text,
        },
        "state": None if state is None else {**_fields(state), "jobs": [_job_document(job) for job in state.jobs]},
    }


def _job_document(line: JobLine) -> dict[str, Any]:
    shown = {name: getattr(line.view, name) for name in ("id", "state", "position", "attempt", "slots")}
    return {**shown, **{name: value for name, value in _fields(line).items() if name != "view"}}


def _fields(value: ReplayState | JobLine | RowDifference) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in fields(value)}


def state_table(state: ReplayState, created_at: float) -> RenderableType:
    """Return a table of an experiment's state after an event, for people.

    Args:
        state: The state.
        created_at: The time at which the experiment was created, in seconds since the Unix epoch.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from hopyard._common.formatting import NOTHING, count, first_line, number

    reason = f" ({state.reason})" if state.reason else ""
    held = ", ".join(f"{m}: {'job ' + job if job else 'idle'}" for m, job in state.slots.items()) or "no slot"
    head = (
        f"after event {state.event}, {state.at - created_at:.1f} s after the start: {state.state}{reason}\n"
        f"share {count(state.share, 'slot')}; {held}"
    )
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("job", "state", "position", "attempt", "slots", "snapshots", "best", "reason"):
        table.add_column(column, justify="right" if column in ("position", "attempt", "best") else "left")
    for job in state.jobs:
        table.add_row(
            job.view.id,
            job.view.state.value,
            str(job.view.position),
            str(job.view.attempt),
            ", ".join(job.view.slots) or NOTHING,
            ", ".join(map(str, job.snapshots)) or NOTHING,
            number(job.best),
            Text(first_line(job.reason)),
        )
    return Group(Text(head), table)


class _Bar(Protocol):
    def reach(self, number: int) -> None: ...


class _NoBar:
    def reach(self, number: int) -> None:
        """Do nothing."""


@contextmanager
def _bar(total: int, quiet: bool) -> Iterator[_Bar]:
    """Show a progress bar on stderr while the context is open, if stderr is a terminal and the journal has `_LONG` events or more.

    The context value receives the number of replayed events. It does nothing if no bar is shown.

    Args:
        total: The number of events.
        quiet: Show no progress bar.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if quiet or total < _LONG or not console.is_terminal:
        yield _NoBar()
        return
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("replaying", total=total)

        class Shown:
            def reach(self, number: int) -> None:
                progress.update(task, completed=number)

        yield Shown()
