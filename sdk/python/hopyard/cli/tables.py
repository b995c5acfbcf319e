"""Results as tables and text for people."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from hopyard.cli import text, verdict
from hopyard.cli.live import style
from hopyard.cli.live.braille import plot
from hopyard.cli.live.model import LiveModel
from hopyard.client.types import Experiment, Job, JobState, Machine, Node, NodeState, Point

_PLOT_LINES = 12
_PLOT_WIDTH = 120
_MOST_ROWS = 20


def experiments_table(found: Sequence[Experiment]) -> RenderableType:
    """The experiments in the order given."""
    if not found:
        return Text("no experiments yet; `hopyard run FILE` starts one")
    table = _table("experiment", "name", "state", "jobs", "best", "job", "ran", "created")
    for one in found:
        table.add_row(
            one.id,
            one.name,
            Text(one.state.value, style=style.EXPERIMENT[one.state]),
            str(sum(one.jobs.values())),
            Text(text.number(one.best_value)),
            one.best_job or text.NOTHING,
            text.duration(one.running_seconds),
            _moment(one.created_at),
        )
    warnings = [Text(f"{one.id}: {one.warning}", style=style.WARNING) for one in found if one.warning]
    return Group(table, *warnings) if warnings else table


def jobs_table(
    experiment: Experiment, found: Sequence[Job], most: int | None = None, *, with_reasons: bool = True
) -> RenderableType:
    """An experiment's jobs, the best first; at most `most` of them. Below it why jobs failed, equal reasons once."""
    if not found:
        return Text(f"{experiment.name} ({experiment.id}) has no jobs yet")
    model = LiveModel()
    model.apply(experiment, 0.0)
    for job in found:
        model.apply(job, 0.0)
    longest = model.max_position
    placed = any(job.machines for job in found)
    columns = ("job", "state", "position", f"best {experiment.metric.name}", "at", "last")
    table = _table(*columns, *(["on"] if placed else []), "hyperparameters")
    ordered = sorted(found, key=model.merit)
    for job in ordered[:most]:
        look = style.JOB[job.state]
        mine = job.id == experiment.best_job
        table.add_row(
            Text(job.id, style=style.BEST if mine else ""),
            Text(f"{look.symbol} {job.state.value.lower()}", style=look.style),
            f"{job.position}/{longest}" if longest else str(job.position),
            Text(text.number(job.best_value), style=style.BEST if mine else ""),
            str(job.best_position) if job.best_value is not None else text.NOTHING,
            text.number(job.last_value),
            *([Text(" ".join(job.machines))] if placed else []),
            Text(text.hyperparameters(job.hyperparameters)),
        )
    parts: list[RenderableType] = [table]
    rest = len(ordered) - (most or len(ordered))
    if rest > 0:
        parts.append(Text(f"and {text.count(rest, 'more job')}: hopyard jobs {experiment.id}", style="dim"))
    if with_reasons:
        parts += [_reason(*one) for one in verdict.reasons(experiment, found)]
    return Group(*parts) if len(parts) > 1 else table


def nodes_table(found: Sequence[Node]) -> RenderableType:
    """The nodes, a line for each machine."""
    if not found:
        return Text("no nodes; `hopyard agent --scheduler HOST:PORT` brings this computer's machines")
    table = _table("node", "state", "machine", "cpus", "gpus", "runs", "last sign of life")
    for node in found:
        for index, machine in enumerate(node.machines):
            first = index == 0
            table.add_row(
                node.id if first else "",
                node.state.value if first else "",
                machine.id,
                str(machine.cpus),
                ",".join(map(str, machine.gpus)) or text.NOTHING,
                _use(node, machine),
                text.silence(node.silent_seconds) if first else "",
            )
        if not node.machines:
            table.add_row(node.id, node.state.value, text.NOTHING, "", "", "", text.silence(node.silent_seconds))
    return table


def best_text(experiment: Experiment, job: Job) -> RenderableType:
    """The best job in a few lines."""
    lines = [
        Text.assemble(
            (f"{experiment.metric.name} {text.number(job.best_value)}", style.BEST),
            f"  job {job.id} at position {job.best_position}  ({job.state.value.lower()})",
        )
    ]
    width = max(map(len, job.hyperparameters), default=0)
    lines += [Text(f"  {name:<{width}}  {value!r}") for name, value in sorted(job.hyperparameters.items())]
    return Group(*lines)


def curve_text(experiment: Experiment, job: str, metric: str, points: Sequence[Point]) -> RenderableType:
    """A curve as a plot."""
    title = f"{experiment.name}, job {job}: {metric}"
    if not points:
        return Text(f"{title}: nothing reported yet")
    width = min(_PLOT_WIDTH, Console().width)
    lines = plot([(point.position, point.value) for point in points], width, _PLOT_LINES, title=title)
    return Group(*(Text(line, no_wrap=True) for line in lines))


def summary(experiment: Experiment, jobs: Sequence[Job]) -> RenderableType:
    """How an experiment ended: the best jobs, and the best one's hyperparameters."""
    reason = f" ({experiment.reason})" if experiment.reason else ""
    head = Text.assemble(
        (experiment.name, "bold"),
        "  ",
        (experiment.state.value, style.EXPERIMENT[experiment.state]),
        f"{reason}  {text.count(len(jobs), 'job')} in {text.duration(experiment.running_seconds)}",
    )
    # When every job failed alike, the closing line says how.
    alike = all(job.state is JobState.FAILED for job in jobs) and len(verdict.reasons(experiment, jobs)) == 1
    parts: list[RenderableType] = [head, jobs_table(experiment, jobs, _MOST_ROWS, with_reasons=not alike)]
    best = next((job for job in jobs if job.id == experiment.best_job), None)
    if best is not None:
        parts += [Text(""), Text("best"), best_text(experiment, best)]
    return Group(*parts)


def _use(node: Node, machine: Machine) -> str:
    if machine.job:
        rank = f" rank {machine.rank} of {machine.world}" if machine.world > 1 else ""
        return f"{machine.experiment} job {machine.job}{rank}"
    if machine.experiment:
        return f"held by {machine.experiment}"
    return "idle" if node.state is NodeState.UP else text.NOTHING


def _reason(state: JobState, jobs: str, line: str) -> Text:
    look = style.JOB[state]
    return Text.assemble((f"{look.symbol} {jobs}", look.style), f"  {line}", no_wrap=True, overflow="ellipsis")


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        number = column in ("jobs", "cpus", "position", "at", "last", "best") or column.startswith("best ")
        table.add_column(column, justify="right" if number else "left", no_wrap=column != "hyperparameters")
    return table


def _moment(at: float) -> str:
    return datetime.datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M")
