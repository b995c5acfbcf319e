"""`hopyard replay`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from hopyard.cli.options import Data, Experiment, Json, Server

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hopyard_scheduler.commands.source import Source
    from hopyard_scheduler.replaying import Replay, State, Until

_LONG = 2_000  # events; fewer are read before a bar could be seen


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
    server: Server = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Show that a policy decides the same again, from its journal.

    The experiment's policy is driven again by what its journal holds. Exit code 1 when it decides otherwise: the first event
    that differs is shown.

    **Examples:** `hopyard replay digits`, `hopyard replay digits --until 120`, `hopyard replay --json`
    """
    from hopyard_scheduler.replaying import parse_until

    limit = parse_until(until) if until is not None else None
    equal = asyncio.run(replay(experiment, limit, server, data, json))
    raise typer.Exit(0 if equal else 1)


async def replay(given: str | None, until: Until | None, server: str | None, data: Path | None, json: bool) -> bool:
    """Carries out the command; answers whether every decision is the same."""
    from hopyard.cli.output import emit, emit_json, say
    from hopyard_scheduler.commands.source import opened
    from hopyard_scheduler.replaying import state_of

    async with opened(server, data, given, "hopyard replay") as source:
        driven, at = await drive(source, until, quiet=json)
    x, name = driven.experiment, source.experiment.id
    state = state_of(x, driven.number, at) if x is not None else None
    if json:
        emit_json(document(name, driven, state))
        return driven.first is None
    say(verdict(name, driven))
    if driven.first is not None:
        emit(f"event {driven.first.event}, up-call {driven.first.up_call}\n  then: {driven.first.then}")
        emit(f"  now:  {driven.first.now}")
    if until is not None and state is not None and x is not None:
        emit(state_table(state, x.founder.created_at))
    return driven.first is None


async def drive(source: Source, until: Until | None, *, quiet: bool) -> tuple[Replay, float]:
    """Replays the source's experiment on a core of its own; answers the replay and the time of the last event taken."""
    from hopyard_scheduler.core import Core
    from hopyard_scheduler.policies import host_of
    from hopyard_scheduler.program import program_of
    from hopyard_scheduler.replaying import Replay

    driven, at, start = Replay(Core(), lambda x: host_of(program_of(x.founder.payload).spec)), 0.0, 0.0
    total = await source.length()
    async with aclosing(source.read()) as events:
        with _bar(total, quiet) as bar:
            async for number, event in events:
                start = start or event.at
                if until is not None and until.passed(number, event, start):
                    break
                driven.take(event)
                at = event.at
                if number % 256 == 0:
                    bar.reach(number)
    return driven, at


def verdict(name: str, driven: Replay) -> str:
    """What came out, in a line."""
    from hopyard.cli.text import count

    what = f"{name}: {count(driven.number, 'event')}, {count(driven.up_calls, 'up-call')} answered again"
    failures = f" ({count(driven.failures, 'recorded failure')} not compared)" if driven.failures else ""
    if driven.first is None:
        return f"{what}{failures}: every decision is the same"
    return f"{what}{failures}: event {driven.first.event} is the first that differs"


def document(name: str, driven: Replay, state: State | None) -> dict[str, Any]:
    """The JSON document."""
    first = driven.first
    return {
        "experiment": name,
        "events": driven.number,
        "up_calls": driven.up_calls,
        "failures": driven.failures,
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
        "state": state,
    }


def state_table(state: State, created_at: float) -> RenderableType:
    """An experiment as it stood at an event."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from hopyard.cli.text import NOTHING, count, first_line, number

    reason = f" ({state.reason})" if state.reason else ""
    held = ", ".join(f"{m}: {'job ' + job if job else 'idle'}" for m, job in state.machines.items()) or "no machine"
    head = (
        f"after event {state.event}, {state.at - created_at:.1f} s after the start: {state.state}{reason}\n"
        f"share {count(state.share, 'machine')}; {held}"
    )
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("job", "state", "position", "attempt", "machines", "snapshots", "best", "reason"):
        table.add_column(column, justify="right" if column in ("position", "attempt", "best") else "left")
    for job in state.jobs:
        table.add_row(
            job.id,
            job.state,
            str(job.position),
            str(job.attempt),
            ", ".join(job.machines) or NOTHING,
            ", ".join(map(str, job.snapshots)) or NOTHING,
            number(job.best),
            Text(first_line(job.reason)),
        )
    return Group(Text(head), table)


class _Bar(Protocol):
    def reach(self, number: int) -> None: ...


class _NoBar:
    def reach(self, number: int) -> None:
        """Shows nothing."""


@contextmanager
def _bar(total: int, quiet: bool) -> Iterator[_Bar]:
    """A progress bar on stderr, for people and long journals."""
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
