"""Formats experiments, jobs, nodes, curves and the lineage of forked jobs as tables and text."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from hopyard._common import formatting
from hopyard.cli.live import job_pools, style
from hopyard.cli.live.columns import JobTable, ordered, retried
from hopyard.cli.live.controls import SortOrder
from hopyard.cli.live.curves import plot
from hopyard.cli.live.model import LiveModel
from hopyard.client.curve_lineage import ancestor
from hopyard.client.display import outcome
from hopyard.client.display.job_looks import JobLook
from hopyard.client.types import Experiment, ExperimentState, Gpu, Job, JobState, Node, NodeState, Point, Slot
from hopyard.policy.vocabulary.reasons import ReasonCode

_PLOT_LINES = 12
_PLOT_WIDTH = 120
_MOST_REASONS = 12
_FEW_REASONS = 3
_FEW_ROWS = 6
"""Rows of the table that a result prefers to the hyperparameters of the best job in one line each."""

_LINES_AFTER = 4
"""Lines of a screen that a result leaves free: for the prompt and for what a command says after the result."""
_MEASURED_WIDTH = 100_000
_NO_MODEL: Final = "the model of the best job was not saved: a report with checkpoint= saves it (docs/programs.md)"
_NUMBERS = frozenset({"jobs", "slots", "share", "cpus", "position", "at", "last", "best"})

Values: TypeAlias = Literal["lines", "brief", "none"]
_VALUES: Final[tuple[Values, ...]] = ("lines", "brief", "none")

Row: TypeAlias = list[str | Text]

NARROW: Final = 80
MEDIUM: Final = 100
"""Terminal width in characters from which all columns are shown."""

_LONGEST_REASON: Final = 120
"""Length in characters above which reasons are printed below the table, so that they do not widen all of its rows."""

_REASON_WIDTH: Final = 40
"""Minimum width in characters of the column of reasons. With less room, reasons are printed below the table."""

_EXPERIMENT_COLUMNS: Final = {
    "experiment": 0,
    "name": MEDIUM,
    "state": 0,
    "slots": 0,
    "share": MEDIUM,
    "jobs": 0,
    "best": 0,
    "job": 0,
    "ran": 0,
    "billed": 0,
    "created": MEDIUM,
}
"""The columns of the experiments table, each with the terminal width from which it is shown. `billed` (slot time) is shown only if an
experiment is in a group.
"""


def experiments_table(found: Sequence[Experiment], width: int = NARROW) -> RenderableType:
    """Format experiments in the given order, with the reasons why they wait or ended.

    Args:
        found: The experiments.
        width: Width of the terminal in characters. If there is room, the reasons are in a column, else below the table.
    """
    if not found:
        return Text("no experiments yet; `hopyard run FILE` starts one")
    grouped = any(one.group not in ("", one.id) for one in found)
    columns = [
        column for column, least in _EXPERIMENT_COLUMNS.items() if width >= least and (grouped or column != "billed")
    ]
    rows: list[Row] = []
    for one in found:
        live = not one.state.ended
        cells: dict[str, str | Text] = {
            "experiment": one.id,
            "name": one.name,
            "state": Text(one.state.value, style=style.EXPERIMENT[one.state]),
            "slots": str(one.slots) if live else formatting.NOTHING,
            "share": str(one.share) if live else formatting.NOTHING,
            "jobs": str(sum(one.jobs.values())),
            "best": Text(formatting.number(one.best_value)),
            "job": one.best_job or formatting.NOTHING,
            "ran": formatting.duration(one.running_seconds),
            "billed": formatting.duration(one.slot_seconds),
            "created": formatting.moment(one.created_at),
        }
        rows.append([cells[column] for column in columns])
    reasons = [formatting.first_line("; ".join(filter(None, (_untold(one), one.warning)))) for one in found]
    table, beside = _with_reasons(columns, rows, reasons, width)
    below = [] if beside else [(one, reason) for one, reason in zip(found, reasons, strict=True) if reason]
    lines = [_line(one.id, style.EXPERIMENT[one.state], reason) for one, reason in below]
    return Group(table, *lines) if lines else table


def _untold(experiment: Experiment) -> str:
    """Return the reason of the state of an experiment; empty if the state already says it."""
    ended = experiment.state is ExperimentState.COMPLETED and experiment.reason_code is ReasonCode.ALL_JOBS_ENDED
    return "" if ended else experiment.reason


def jobs_table(
    experiment: Experiment,
    found: Sequence[Job],
    *,
    with_reasons: bool = True,
    width: int = NARROW,
) -> RenderableType:
    """Format the jobs of an experiment, the best first. If any job was forked, a column shows PARENT@POSITION.

    Args:
        experiment: The experiment.
        found: Its jobs.
        with_reasons: Whether to show the reasons why jobs failed or wait.
        width: Width of the terminal in characters. If there is room, the reasons are in a column, else below the table, each
            distinct reason once.
    """
    if not found:
        return Text(f"{experiment.name} ({experiment.id}) has no jobs yet")
    model = _model(experiment, found)
    placed = any(job.slots for job in found)
    labelled = job_pools.labelled(found) and any(job_pools.mark(job) for job in found)
    forked = any(job.parent for job in found)
    columns = ["job", "state", *(["p"] if labelled else []), "position", f"best {experiment.metric.name}", "at", "last"]
    columns += [*(["from"] if forked else []), *(["on"] if placed else []), "hyperparameters"]
    rows: list[Row] = []
    # Of equal values the experiment's best job, whose value was reported first, comes first.
    best_first = sorted(found, key=lambda job: (model.merit(job), job.id != experiment.best_job))
    for job in best_first:
        look = style.of(job)
        mine = job.id == experiment.best_job
        rows.append(
            [
                Text(job.id, style=style.BEST if mine else ""),
                Text(f"{look.symbol} {look.word}{retried(job)}", style=look.style),
                *([job_pools.mark(job)] if labelled else []),
                f"{job.reached}/{longest}" if (longest := model.length(job)) else str(job.reached),
                Text(formatting.number(job.best_value), style=style.BEST if mine else ""),
                str(job.best_position) if job.best_value is not None else formatting.NOTHING,
                formatting.number(job.last_value),
                *([f"{job.parent}@{job.fork_position}" if job.parent else formatting.NOTHING] if forked else []),
                *([Text(" ".join(job.slots))] if placed else []),
                Text(formatting.hyperparameters(job.hyperparameters)),
            ]
        )
    whys = [outcome.why(experiment, job) if with_reasons else "" for job in best_first]
    table, beside = _with_reasons(columns, rows, whys, width)
    parts: list[RenderableType] = [table]
    if with_reasons and not beside:
        parts += _reasons(experiment, found, _MOST_REASONS)
    return Group(*parts) if len(parts) > 1 else table


def top_jobs(model: LiveModel, width: int, lines: int, more: str) -> list[Text]:
    """Format the best jobs of a model as a table of a limited number of lines, without the reasons of their states.

    Args:
        model: The model.
        width: Width of the terminal in characters.
        lines: Maximum number of lines. If there are more jobs than fit, the last line has the number of the others. With less than 3
            lines, it is the only one.
        more: The command that shows all jobs.
    """
    jobs = ordered(model, SortOrder.VALUE)
    rows = len(jobs) if len(jobs) < lines else max(0, lines - 2)
    shown = JobTable(model, jobs[:rows], width).lines() if rows else []
    rest = len(jobs) - rows
    what = f"{rest} more" if rows else formatting.count(rest, "job")
    return [*shown, Text(f"... {what}: {more}", style="dim")] if rest else shown


def _model(experiment: Experiment, jobs: Sequence[Job], model: LiveModel | None = None) -> LiveModel:
    """Return a model with the present state of an experiment and its jobs: `model`, or a new one if it is None."""
    model = model if model is not None else LiveModel()
    model.apply(experiment, 0.0)
    for job in jobs:
        model.apply(job, 0.0)
    return model


def _reasons(experiment: Experiment, jobs: Sequence[Job], most: int) -> list[Text]:
    """Return a line for each reason of the jobs' states, at most `most`, and then a line with the number of the others."""
    reasons = outcome.reasons(experiment, jobs)
    lines = [_reason(*one) for one in reasons[:most]]
    if len(reasons) > most > 0:
        lines.append(Text(f"and {formatting.count(len(reasons) - most, 'more reason')}: --json has all", style="dim"))
    return lines


def nodes_table(found: Sequence[Node]) -> RenderableType:
    """Format nodes, with one line for each slot, and below them why nodes are not UP.

    If any node has GPUs, columns show their models and present use.
    """
    if not found:
        return Text("no nodes; `hopyard agent --scheduler ADDRESS --data DIR` adds this computer")
    with_gpus = any(node.gpus for node in found)
    shown = ("gpu", "gpu memory", "gpu use") if with_gpus else ()
    table = _table("node", "state", "slot", "cpus", "gpus", *shown, "runs", "last sign of life")
    for node in found:
        for index, slot in enumerate(node.slots):
            first = index == 0
            gpus = [gpu for gpu in node.gpus if slot.id in gpu.slots]
            table.add_row(
                node.id if first else "",
                _node_state(node) if first else "",
                slot.id,
                str(slot.cpus),
                ",".join(map(str, slot.gpus)) or formatting.NOTHING,
                *(Text("\n".join(cells) or formatting.NOTHING) for cells in _gpu_cells(gpus) if with_gpus),
                _use(node, slot),
                formatting.silence(node.silent_seconds) if first else "",
            )
        if not node.slots:
            blank = [""] * (3 + len(shown))
            table.add_row(
                node.id, _node_state(node), formatting.NOTHING, *blank, formatting.silence(node.silent_seconds)
            )
    reasons = [_line(node.id, "bold", node.reason) for node in found if node.reason]
    return Group(table, *reasons) if reasons else table


def _node_state(node: Node) -> str:
    age = f" {formatting.duration(node.state_seconds)}" if node.state_seconds is not None else ""
    return f"{node.state.value}{age}"


def _gpu_cells(gpus: Sequence[Gpu]) -> tuple[list[str], list[str], list[str]]:
    """Return the models, the memory in use and the utilization of GPUs, with one line for each GPU."""

    def memory(gpu: Gpu) -> str:
        whole = formatting.size(gpu.memory_bytes)
        return whole if gpu.memory_used_bytes is None else f"{formatting.size(gpu.memory_used_bytes)} of {whole}"

    def utilization(gpu: Gpu) -> str:
        return formatting.NOTHING if gpu.utilization is None else f"{gpu.utilization:.0%}"

    return (
        [gpu.model or formatting.NOTHING for gpu in gpus],
        [memory(gpu) for gpu in gpus],
        [utilization(gpu) for gpu in gpus],
    )


def best_text(experiment: Experiment, job: Job, *, label: str = "", values: Values = "lines") -> RenderableType:
    """Format the best job of an experiment: its value, position, state and hyperparameters.

    Args:
        experiment: The experiment.
        job: Its best job.
        label: A text before the value.
        values: How to write the hyperparameters: "lines": all digits, one in each line; "brief": rounded, one after the other; "none":
            not at all.
    """
    head = Text.assemble(
        label,
        (f"{experiment.metric.name} {formatting.number(job.best_value)}", style.BEST),
        f"  job {job.id} at position {job.best_position}  ({style.of(job).word})",
    )
    if values == "none":
        return head
    if values == "brief":
        return Group(head, Text(f"  {formatting.hyperparameters(job.hyperparameters)}"))
    width = max(map(len, job.hyperparameters), default=0)
    lines = [
        Text(f"  {name:<{width}}  {formatting.value(value) if isinstance(value, dict) else repr(value)}")
        for name, value in sorted(job.hyperparameters.items())
    ]
    return Group(head, *lines)


def curve_text(experiment: Experiment, job: Job, metric: str, points: Sequence[Point]) -> RenderableType:
    """Format the learning curve of a job as a text plot. Without points, a line says that nothing was reported.

    Args:
        experiment: The experiment, whose name is in the title.
        job: The job.
        metric: Name of the plotted metric.
        points: The learning curve, ordered by position.
    """
    origin = f" (from job {job.parent} at {job.fork_position})" if job.parent else ""
    title = f"{experiment.name}, job {job.id}{origin}: {metric}"
    if not points:
        return Text(f"{title}: nothing reported yet")
    width = min(_PLOT_WIDTH, Console().width)
    lines = plot([(point.position, point.value) for point in points], width, _PLOT_LINES, title=title)
    return Group(*(Text(line, no_wrap=True) for line in lines))


def summary(
    experiment: Experiment,
    jobs: Sequence[Job],
    width: int = NARROW,
    *,
    height: int | None = None,
    model: LiveModel | None = None,
    where: str = "",
) -> RenderableType:
    """Format the result of an experiment: its jobs, the best first, and below them what a reader needs most.

    The last lines have the state of the experiment, the number of its jobs and its time, the best job with its hyperparameters, and
    commands to look further.

    Args:
        experiment: The experiment.
        jobs: Its jobs.
        width: Width of the terminal in characters.
        height: Number of lines of the terminal, which the result must fit: the table is cut to the best jobs. None: no terminal,
            so that all jobs are shown with all columns.
        model: The model of the live view, whose curves are shown in a terminal; None: no curves.
        where: The options with which other commands find the cluster, with a leading blank.
    """
    more = f"hopyard jobs {experiment.id}{where}"
    # If all jobs failed for the same reason, the final error line states it.
    alike = all(job.state is JobState.FAILED for job in jobs) and len(outcome.reasons(experiment, jobs)) == 1
    below = _result(experiment, jobs, where)
    if height is None:
        return Group(jobs_table(experiment, jobs, with_reasons=not alike, width=width), Text(""), *below)
    reasons = [] if alike else _reasons(experiment, jobs, _FEW_REASONS if height > 2 * _FEW_ROWS else 0)
    most = height - _LINES_AFTER - len(reasons) - 1
    room = most - _lines(Group(*below), width)
    for values in _VALUES[1:]:
        if room >= min(_FEW_ROWS, len(jobs)):
            break
        below = _result(experiment, jobs, where, values)
        room = most - _lines(Group(*below), width)
    shown = _model(experiment, jobs, model)
    return Group(*top_jobs(shown, width, room, more), *reasons, Text(""), *below)


def _result(experiment: Experiment, jobs: Sequence[Job], where: str, values: Values = "lines") -> list[RenderableType]:
    """Return the lines below the jobs: how the experiment stands, its best job, and commands to look further."""
    reason = f" ({formatting.first_line(experiment.reason)})" if experiment.reason else ""
    total = outcome.planned_jobs(experiment, len(jobs))
    amount, time = formatting.count(total, "job"), formatting.duration(experiment.running_seconds)
    ended = sum(job.state.ended for job in jobs)
    failed = [job for job in jobs if job.state is JobState.FAILED]
    parts: list[RenderableType] = [
        Text(line) for line in (_moved(experiment), _grown(experiment), _shared(experiment, jobs)) if line
    ]
    parts.append(
        Text.assemble(
            (experiment.name, "bold"),
            "  ",
            (experiment.state.value, style.EXPERIMENT[experiment.state]),
            f"{reason}  {amount if ended == total else f'{ended} of {amount} ended'}"
            f"{f', {len(failed)} failed' if failed else ''} in {time}",
        )
    )
    best = next((job for job in jobs if job.id == experiment.best_job), None)
    if best is not None:
        parts.append(best_text(experiment, best, label="best ", values=values))
    if experiment.state.ended and best is not None:
        parts.append(Text(f"next: {', '.join(_next_commands(experiment, best, failed, where))}", style="dim"))
        # The output of a program in log mode cannot name a checkpoint; a small terminal has no room.
        if not _downloadable(best) and not experiment.spec.get("log") and values != "none":
            parts.append(Text(_NO_MODEL, style="dim"))
    return parts


def _next_commands(experiment: Experiment, best: Job, failed: Sequence[Job], where: str) -> list[str]:
    """Return commands for an ended experiment: about its best job, and about its failed jobs."""
    name = f"{experiment.id}{where}"
    commands = [f"hopyard curve {name}"]
    if _downloadable(best):
        commands.append(f"hopyard download {name} -o DIR")
    if failed:
        commands += [f"hopyard logs {experiment.id} {failed[0].id}{where}", f"hopyard retry {name}"]
    return commands


def _lines(renderable: RenderableType, width: int) -> int:
    """Return the number of lines that a renderable has in a terminal of this width."""
    console = Console(width=width, file=io.StringIO())
    return len(console.render_lines(renderable, pad=False))


def _grown(experiment: Experiment) -> str:
    """Return the command that plots the number of slots of each job over time.

    Empty: the policy is not elastic, so it does not change the number of slots of running jobs.
    """
    if (experiment.spec.get("policy") or {}).get("elastic") is None:
        return ""
    return f"hopyard plot {experiment.id} --kind gangs -o gangs.svg shows the number of slots of each job"


def _shared(experiment: Experiment, jobs: Sequence[Job]) -> str:
    """Return a sentence on the training that jobs under the policy `stage_tree` reused from others, and on the slot time.

    The slot time is that charged to the experiment (`Experiment.slot_seconds`). Empty: no job reused any training, or the policy is
    another one.
    """
    policy = experiment.spec.get("policy") or {}
    without = sum(job.state is JobState.COMPLETED and not job.attempt for job in jobs)
    onward = sum(bool(job.parent and job.attempt) for job in jobs)
    if policy.get("name") != "stage_tree" or not (without or onward):
        return ""
    parts = (
        [f"{without} without a run of its own" if without == 1 else f"{without} without runs of their own"]
        if without
        else []
    )
    parts += [f"{onward} from another job's snapshot"] if onward else []
    billed = formatting.duration(experiment.slot_seconds)
    return (
        f"shared: of {formatting.count(len(jobs), 'job')} {', '.join(parts)}; slot time billed: {billed}; "
        f"hopyard tree {experiment.id} shows who trained what"
    )


def _moved(experiment: Experiment) -> str:
    """Return a sentence with the model transfers in an experiment with partitioned data; empty without such data.

    It has the number and the bytes of transfers from node to node, from the store, and to the store.
    """
    hops = experiment.hops
    if experiment.spec.get("data") is None:
        return ""
    ways = (
        (hops.direct, hops.direct_bytes, "from node to node"),
        (hops.fetched, hops.fetched_bytes, "from the store"),
        (hops.stored, hops.stored_bytes, "to the store"),
    )
    parts = ", ".join(f"{count} {way} ({formatting.size(size)})" for count, size, way in ways if count)
    return f"models moved: {parts or 'none'}; hopyard plot {experiment.id} --kind hops -o hops.svg shows the visits"


def _use(node: Node, slot: Slot) -> str:
    if slot.job:
        rank = f" rank {slot.rank} of {slot.world}" if slot.world > 1 else ""
        return f"{slot.experiment} job {slot.job}{rank}"
    if slot.experiment:
        return f"held by {slot.experiment}"
    return "idle" if node.state is NodeState.UP else formatting.NOTHING


def _downloadable(job: Job) -> bool:
    """Return whether a job has a snapshot that `hopyard download` accepts: one that does not contain the job's processes."""
    return any(one.provider != "criu" for one in job.snapshots)


def _reason(look: JobLook, jobs: str, line: str) -> Text:
    return _line(f"{look.symbol} {jobs}", look.style, line)


def _line(subject: str, look: str, words: str) -> Text:
    return Text.assemble((subject, look), f"  {words}", no_wrap=True, overflow="ellipsis")


def _with_reasons(
    columns: Sequence[str], rows: Sequence[Row], reasons: Sequence[str], width: int
) -> tuple[Table, bool]:
    """Return a table of `rows`, with the reasons as its last column if they fit.

    Args:
        columns: The headings, without that of the reasons.
        rows: The rows, without reasons.
        reasons: The reason for each row; empty: none.
        width: Width of the terminal in characters.

    Returns:
        The table; and whether it contains all reasons, so that none must be printed below it.
    """
    bare = _filled(_table(*columns), rows)
    measured = Console(width=_MEASURED_WIDTH, file=io.StringIO()).measure(bare).maximum
    room = width - measured - 2
    if room < _REASON_WIDTH or not any(reasons) or max(map(len, reasons)) > _LONGEST_REASON:
        return bare, not any(reasons)
    table = _table(*columns)
    table.add_column("why", no_wrap=True, overflow="ellipsis", max_width=room)
    return _filled(table, [[*row, Text(reason)] for row, reason in zip(rows, reasons, strict=True)]), True


def _filled(table: Table, rows: Sequence[Row]) -> Table:
    for row in rows:
        table.add_row(*row)
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        number = column in _NUMBERS or column.startswith("best ")
        table.add_column(column, justify="right" if number else "left", no_wrap=column != "hyperparameters")
    return table


@dataclass(frozen=True, slots=True)
class LineageStretch:
    """A part of the training that led to a job's current state, trained by the job itself or by a job it was forked from.

    Attributes:
        job: Id of the job that trained this part.
        start: Position at which the part begins, exclusive.
        end: Position at which the part ends, inclusive: the next fork, or the current position of the last job.
        hyperparameters: The hyperparameters of the job that trained it.
    """

    job: str
    start: int
    end: int
    hyperparameters: Mapping[str, Any]


def lineage(jobs: Mapping[str, Job], job: Job) -> list[LineageStretch]:
    """Return the parts that make up the training of a job, from the beginning.

    Args:
        jobs: The jobs of the experiment by id.
        job: The job, one of `jobs`.
    """
    found: list[LineageStretch] = []
    passed = set[str]()
    end, here = job.position, job
    while True:
        parent = ancestor(here, end, passed)
        start = here.fork_position if parent is not None else 0
        # If the fork position is not beyond the parent's own start, the parent trained nothing of this stretch.
        if start < end or not passed:
            found.append(LineageStretch(here.id, start, max(start, end), here.hyperparameters))
        if parent is None or parent not in jobs:
            return found[::-1]
        passed.add(here.id)
        end, here = min(start, end), jobs[parent]


def lineage_table(stretches: list[LineageStretch]) -> RenderableType:
    """Format the parts of a job's training, one line each, with the hyperparameters that differ between them."""
    names = sorted({name for one in stretches for name in one.hyperparameters})
    values = {name: [one.hyperparameters.get(name) for one in stretches] for name in names}
    changing = [name for name, given in values.items() if any(value != given[0] for value in given)]
    if not changing:
        return Text(f"trained by jobs {', '.join(one.job for one in stretches)}, with the same hyperparameters")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("from", "to", "by job"):
        table.add_column(column, justify="right", no_wrap=True)
    for name in changing:
        table.add_column(name, justify="right")
    for one in stretches:
        given = (
            formatting.value(one.hyperparameters[name]) if name in one.hyperparameters else formatting.NOTHING
            for name in changing
        )
        table.add_row(str(one.start), str(one.end), one.job, *given)
    return table
