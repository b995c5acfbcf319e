"""The command `hopyard rungs`, which shows the rungs of successive halving and their jobs.

A rung is a position at which jobs are compared and the best are promoted. A bracket is an independent sequence of
rungs.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hopyard.cli.options import Data, Experiment, Json, Server
from hopyard_tools.commands.policy_queries import At

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hopyard.policy import Rung
    from hopyard_engine.replay import Replay, Until


def command(
    experiment: Experiment = None,
    at: At = None,
    jobs: Annotated[bool, typer.Option("--jobs", help="Every job on each rung, the best first.")] = False,
    server: Server = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Show the jobs on each rung of successive halving.

    Now, or at any event of the journal: the experiment's policy is replayed up to that event and queried. Only policies
    with rungs have an answer (asha, sha, hyperband, ...).

    **reported** is the number of jobs with a result on the rung, with "of N" if the rung has room for N only;
    **awaited** the number of jobs on their way to it; **cut-off** the worst value that was promoted from it so far;
    **best** and **job** the best result on it.

    **Examples:** `hopyard rungs digits`, `hopyard rungs digits --at 120 --jobs`, `hopyard rungs --json`
    """
    from hopyard_engine.replay import parse_until

    limit = parse_until(at, "--at") if at is not None else None
    asyncio.run(show(experiment, limit, jobs, server, data, json))


async def show(
    given: str | None, limit: Until | None, jobs: bool, server: str | None, data: Path | None, json: bool
) -> None:
    """Perform the command: print the rungs of an experiment's policy, or a message if the policy has none.

    Args:
        given: The experiment's id or name; None: the newest experiment.
        limit: The event or time to show; None: the present.
        jobs: Print also every job on each rung.
        server: Address of a running cluster's scheduler; None: the cluster is found by `data`.
        data: Data folder of a cluster; None: the default folder.
        json: Print one JSON document instead of tables.

    Raises:
        NotFound: The experiment or the cluster does not exist.
        InvalidInput: The policy cannot be created on this computer, or failed.
    """
    from hopyard.cli.output import emit, emit_json, say
    from hopyard_tools.commands.policy_queries import moment

    found = await moment(given, limit, "hopyard rungs", server, data, quiet=json)
    name, standing = found.name, standing_of(found.driven, found.at)
    if json:
        rungs = [_plain(Summary.of(rung)) for rung in standing] if standing is not None else None
        emit_json(
            {
                "experiment": name,
                "policy": found.policy,
                "event": found.driven.number,
                "at": found.at,
                "decisions_equal": found.driven.first is None,
                "rungs": rungs,
            }
        )
    elif standing is None:
        say(f"{name}: its policy {found.policy} has no rungs; `hopyard jobs {name}` shows where its jobs are")
    elif not standing:
        say(f"{name}: after event {found.driven.number} no job is on a rung yet")
    else:
        emit(tables(standing, found.title, jobs=jobs))


def standing_of(driven: Replay, at: float) -> Sequence[Rung] | None:
    """Return the policy's rungs after a replay; empty: no event has called the policy yet; None: the policy has no rungs.

    Args:
        driven: The replay.
        at: The time of its last event, in seconds since the Unix epoch.

    Raises:
        InvalidInput: The policy cannot be created on this computer, or failed.
    """
    from hopyard_tools.commands.policy_queries import standing

    found = standing(driven)
    return () if found is None else found[1].rungs(found[0], at)


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of a rung, as shown to people.

    Attributes:
        rung: The rung.
        promoted: The number of jobs promoted from it.
        cut_off: The worst value that was promoted from it; None: none was promoted.
        best: The best value reported on it; None: there is no report, or the best one is not finite.
    """

    rung: Rung
    promoted: int
    cut_off: float | None
    best: float | None

    @staticmethod
    def of(rung: Rung) -> Summary:
        """Return the summary of a rung. The results of its jobs (`rung.standings`) must be sorted, the best first."""
        promoted = [standing.value for standing in rung.standings if standing.promoted]
        best = rung.standings[0].value if rung.standings else math.nan
        return Summary(rung, len(promoted), promoted[-1] if promoted else None, best if math.isfinite(best) else None)

    @property
    def reported(self) -> str:
        """The number of jobs with a report on the rung, as text; if the rung has a maximum, with "of" and the maximum."""
        given, width = len(self.rung.standings), self.rung.width
        return f"{given} of {width}" if width is not None else str(given)


def _plain(summary: Summary) -> dict[str, Any]:
    rung = summary.rung
    return {
        "bracket": rung.bracket,
        "number": rung.number,
        "position": _finite(rung.position),
        "width": rung.width,
        "reported": len(rung.standings),
        "promoted": summary.promoted,
        "cut_off": summary.cut_off,
        "best": summary.best,
        "awaited": rung.awaited,
        "standings": rung.standings,
    }


def _finite(position: int) -> int | None:
    """Return the position of a rung, or None if it is `ENDLESS`.

    `ENDLESS` marks the last rung of a bracket (an independent sequence of rungs) that has no maximum position.
    """
    from hopyard.policy import ENDLESS

    return position if position < ENDLESS else None


def _shown(rungs: Sequence[Rung]) -> list[Rung]:
    """Return the rungs of one bracket (an independent sequence of rungs) to show.

    Of a bracket without a maximum position, these are the rungs up to the first one above all rungs with jobs.
    """
    if _finite(rungs[-1].position) is not None:
        return list(rungs)
    used = max((rung.number for rung in rungs if rung.standings or rung.awaited), default=-1)
    return [rung for rung in rungs if rung.number <= used + 1]


def tables(rungs: Sequence[Rung], title: str, *, jobs: bool) -> RenderableType:
    """Return a table for each bracket (an independent sequence of rungs), with the highest rung first, for people.

    Args:
        rungs: The rungs, sorted by bracket.
        title: The first line.
        jobs: Add a list of the jobs on each rung.
    """
    from rich.console import Group
    from rich.text import Text

    brackets = [(number, list(experiments)) for number, experiments in groupby(rungs, key=lambda rung: rung.bracket)]
    parts: list[RenderableType] = [Text(title)]
    for number, experiments in brackets:
        parts.append(Text(f"\nbracket {number}" if len(brackets) > 1 else ""))
        experiments = _shown(experiments)
        parts.append(_table(experiments))
        if jobs:
            parts += [
                Text(line) for rung in reversed(experiments) if rung.standings or rung.awaited for line in _jobs(rung)
            ]
    return Group(*parts)


def _table(rungs: Sequence[Rung]) -> RenderableType:
    from rich.table import Table

    from hopyard._common.formatting import NOTHING, number

    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("rung", "position", "reported", "awaited", "promoted", "cut-off", "best", "job"):
        table.add_column(column, justify="left" if column == "job" else "right")
    for summary in map(Summary.of, reversed(rungs)):
        rung = summary.rung
        table.add_row(
            str(rung.number),
            str(_finite(rung.position) or "∞"),
            summary.reported,
            str(len(rung.awaited)),
            str(summary.promoted),
            number(summary.cut_off),
            number(summary.best),
            rung.standings[0].job if summary.best is not None else NOTHING,
        )
    return table


def _jobs(rung: Rung) -> list[str]:
    """Return lines that list the jobs on a rung with their values, and the jobs that are expected to reach it."""
    from hopyard._common.formatting import number

    lines = ["", f"rung {rung.number}, position {rung.position}"]
    width = max((len(standing.job) for standing in rung.standings), default=0)
    lines += [
        f"  {standing.job:>{width}}  {number(standing.value)}{'  promoted' if standing.promoted else ''}"
        for standing in rung.standings
    ]
    if rung.awaited:
        lines.append(f"  awaited: {', '.join(rung.awaited)}")
    return lines
