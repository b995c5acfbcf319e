"""Draws the live view: a pure function of the model, the controls, the size of the terminal and the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from hopyard._common import formatting
from hopyard.cli.live import job_pools, style
from hopyard.cli.live.columns import JobTable, ordered
from hopyard.cli.live.controls import Controls, Screen, SortOrder
from hopyard.cli.live.log_tail import LogTail
from hopyard.cli.live.model import LiveModel
from hopyard.client.display.job_looks import JobLook
from hopyard.client.display.outcome import is_asked
from hopyard.client.display.short_reason import short_reason
from hopyard.client.types import ExperimentState, Job, JobState

_LEAST_ROWS: Final = 3
"""Number of jobs that the header leaves room for."""

_ROOM_FOR_REASONS: Final = 16
"""Number of lines from which the reasons why jobs wait are shown."""

_ROOM_FOR_COUNTS: Final = 12
"""Number of lines from which the number of jobs in each state is shown."""

_MOST_REASONS: Final = 2

_SHORT_NAME: Final = 16
_ROOM_BESIDE_NAME: Final = 60
"""Characters of the first line that a long name of an experiment leaves for its state and progress."""

Part = tuple[str, str]
"""A text and its style."""

_KEYS: Final = (
    ("up down, k j", "select a job; Page Up, Page Down, g and G move further, Esc selects none"),
    ("l, Enter", "the log of the selected job; q or Esc goes back"),
    ("p", "pause the selected job, or resume it"),
    ("P", "pause the experiment, or resume it"),
    ("s", "sort by state, value, training time, or job"),
    ("Ctrl-L", "draw the screen again"),
)


def render(
    model: LiveModel,
    width: int,
    height: int,
    now: float,
    *,
    ascii_only: bool = False,
    controls: Controls | None = None,
) -> RenderableType:
    """Draw the live view.

    Args:
        model: The model to draw.
        width: Number of characters per line. Narrow terminals get fewer columns.
        height: Number of lines. The table of jobs gets the lines that the header leaves.
        now: Current time in monotonic seconds, on the clock of the model's changes.
        ascii_only: Use only ASCII characters.
        controls: What keys have changed: the screen, the order and the selected job; None: no keys are read, and none are named.

    Returns:
        A rich renderable that fits into `width` and `height`.
    """
    if controls is not None and controls.screen is Screen.HELP:
        return _fitted(_help(controls, width), height)
    if controls is not None and controls.screen is Screen.LOG and controls.log is not None:
        return _fitted(_log(model, controls, controls.log, width, height, ascii_only), height)
    header = _header(model, width, height, now, ascii_only)
    footer = _footer(model, controls, width, ascii_only) if controls is not None else []
    if not model.jobs:
        return _fitted([*header, *footer], height)
    footer = [*_detail(model, controls, width), *footer] if height >= _ROOM_FOR_COUNTS else footer
    room = height - len(header) - len(footer) - 1
    shown = ordered(model, controls.sort if controls is not None else SortOrder.STATE)
    rest: list[Text] = []
    if len(shown) > room:
        room = max(1, room - 1)
    selected = controls.selected if controls is not None else None
    first = _first_row(shown, selected, room)
    rows = shown[first : first + room]
    if len(rows) < len(shown):
        rest = [_rest(shown, first, len(rows), width)]
    by_time = controls is not None and controls.sort is SortOrder.TIME
    table = JobTable(model, rows, width, ascii_only=ascii_only, by_time=by_time, selected=selected)
    above = [*header, *table.lines(), *rest]
    # The keys stay in the last line.
    blank = [Text("")] * (height - len(above) - len(footer)) if controls is not None else []
    return _fitted([*above, *blank, *footer], height)


def _first_row(jobs: Sequence[Job], selected: str | None, room: int) -> int:
    """Return the index of the first job to show in `room` lines: 0, or so that the selected job is in the middle."""
    index = next((index for index, job in enumerate(jobs) if job.id == selected), 0)
    return max(0, min(index - room // 2, len(jobs) - room))


def _header(model: LiveModel, width: int, height: int, now: float, ascii_only: bool) -> list[Text]:
    """Return the lines above the table, the important ones first, at least two. They leave room for three jobs and the footer."""
    silence = model.silence(now)
    told = [_line(width, (silence, "bold red"))] if silence else []
    lines = [*_title(model, width, now), *told, _best(model, width)]
    for message, look in ((model.trouble, "bold red"), (model.note, "bold")):
        lines += [_line(width, (message, look))] if message else []
    experiment = model.experiment
    # What the cluster waits for is not known while it does not answer.
    if experiment is not None and experiment.reason and not silence and not is_asked(experiment):
        lines.append(_line(width, (formatting.first_line(experiment.reason), "dim")))
    if experiment is not None and experiment.warning:
        lines.append(_line(width, (formatting.first_line(experiment.warning), style.WARNING)))
    if height >= _ROOM_FOR_COUNTS and model.jobs:
        lines.append(_counts(model, width, now, ascii_only))
    lines += [
        _line(width, (f"node {node.id} is lost: {formatting.first_line(node.reason)}", style.WARNING))
        for node in list(model.incidents.lost_nodes.values())[:_MOST_REASONS]
    ]
    lines += _retried(model, width)
    lines += _reasons(model.failures()[:1], width, ascii_only)
    if height >= _ROOM_FOR_COUNTS and job_pools.labelled(model.jobs.values()):
        lines.append(_pools(model, width, ascii_only))
    if height >= _ROOM_FOR_REASONS and not silence:
        lines += _reasons(model.waits()[:_MOST_REASONS], width, ascii_only)
    return lines[: max(2, height - _LEAST_ROWS - 3)]


def _title(model: LiveModel, width: int, now: float) -> list[Text]:
    """Return one line, or two in a narrow terminal, with the name, the state, the progress, the slots and the times."""
    experiment = model.experiment
    if experiment is None:
        return [_line(width, (f"{model.source or 'experiment'}  waiting for the cluster", "dim"))]
    name = Text(formatting.first_line(experiment.name))
    name.truncate(max(_SHORT_NAME, width - _ROOM_BESIDE_NAME), overflow="ellipsis")
    state = (experiment.state.name, style.EXPERIMENT[experiment.state])
    left = model.remaining(now)
    times = formatting.duration(model.elapsed(now)) + (f", {left}" if left else "")
    parts: list[list[Part]] = [
        [(name.plain, "bold"), ("  ", ""), state],
        [(f"{model.ended_jobs} of {formatting.count(model.total_jobs, 'job')}", "")],
        [(_slots(model), "")],
        [(times, "")],
    ]
    if width >= 100:
        parts[0].insert(1, (f"  {experiment.id}", "dim"))
    return _flowed(parts, width)


def _slots(model: LiveModel) -> str:
    busy, held = model.slots_in_use()
    total = model.slots if model.slots is not None else max(held, model.experiment.share if model.experiment else 0)
    return f"{busy} of {formatting.count(max(total, held), 'slot')}{f' ({held} held)' if held != busy else ''}"


def _best(model: LiveModel, width: int) -> Text:
    experiment = model.experiment
    if experiment is None or model.best_value is None:
        return _line(width, (model.without_best(), "bold" if model.metrics else "dim"))
    parts = [
        ("best ", ""),
        (f"{experiment.metric.name} {formatting.number(experiment.best_value)}", style.BEST),
        (f"  job {experiment.best_job} at {experiment.best_position}", ""),
    ]
    if experiment.metric.target is not None:
        over = f" over {experiment.metric.target_over} reports" if experiment.metric.target_over > 1 else ""
        parts.append((f"  target {formatting.number(experiment.metric.target)}{over}", "dim"))
    best = model.best()
    if best is not None:
        parts.append((f"  {formatting.hyperparameters(_varied(model, best))}", ""))
    return _line(width, *parts)


def _varied(model: LiveModel, job: Job) -> dict[str, Any]:
    names = set(model.hyperparameters())
    return {name: given for name, given in job.hyperparameters.items() if name in names}


def _counts(model: LiveModel, width: int, now: float, ascii_only: bool) -> Text:
    """Return a line with the number of jobs in each state and, while the cluster answers, the rate of reports."""
    parts = [(f"{_mark(look, ascii_only)} {amount} {look.word}", look.style) for look, amount in model.counts().items()]
    if not model.silence(now):
        parts.append((f"{model.rate(now):.1f} reports/s", "dim"))
    gap = "  " if sum(len(text) + 2 for text, _ in parts) <= width + 2 else " "
    return _line(width, *[part for one in parts for part in ((gap, ""), one)][1:])


def _pools(model: LiveModel, width: int, ascii_only: bool) -> Text:
    """Return a line, cut to `width` characters, with the number of promising, opportunistic and terminated jobs.

    With `ascii_only`, the symbols of these pools are ASCII characters.
    """
    parts: list[Part] = [("policy", "")]
    for pool, amount in job_pools.counts(model.jobs.values()).items():
        symbol, plain, look = job_pools.LOOKS[pool]
        parts.append((f"  {plain if ascii_only else symbol} {amount} {pool.value}", look))
    return _line(width, *parts)


def _reasons(found: Iterable[tuple[JobState, int, str]], width: int, ascii_only: bool) -> list[Text]:
    """Return one line for each reason, with the number of jobs in whose state it is. Lines are cut to `width` characters."""
    return [
        _line(
            width,
            (f"{_mark(style.JOB[state], ascii_only)} {formatting.count(amount, 'job')}", style.JOB[state].style),
            (f"  {reason or 'no message'}", "dim"),
        )
        for state, amount, reason in found
    ]


def _retried(model: LiveModel, width: int) -> list[Text]:
    """Return a line for each job that tries again after a failure, at most two, and then one with the number of the others."""
    failed = model.retried()
    lines = [_line(width, (str(one), style.WARNING)) for one in failed[:_MOST_REASONS]]
    if len(failed) > _MOST_REASONS:
        more = formatting.count(len(failed) - _MOST_REASONS, "more job")
        lines.append(_line(width, (f"{more} failed and will be tried again", style.WARNING)))
    return lines


def _rest(jobs: Sequence[Job], first: int, shown: int, width: int) -> Text:
    """Return a line about the jobs that are not shown, before and after the `shown` jobs from the index `first`."""
    hidden = [*jobs[:first], *jobs[first + shown :]]
    counted = Counter(style.of(job).word for job in hidden)
    words = ", ".join(f"{amount} {state}" for state, amount in counted.items())
    where = f"{first} above, " if first else ""
    return _line(width, (f"... {where}{formatting.count(len(hidden), 'more job')}: {words}", "dim"))


def _detail(model: LiveModel, controls: Controls | None, width: int) -> list[Text]:
    """Return two lines about the selected job: all of its hyperparameters, and its reason or its slots; none without a selection."""
    job = model.jobs.get(controls.selected or "") if controls is not None else None
    if job is None:
        return []
    state = style.of(job)
    why = short_reason(job) or (f"on {' '.join(job.slots)}" if job.slots else "")
    return [
        _line(width, (f"job {job.id}", "bold"), (f"  {formatting.hyperparameters(job.hyperparameters)}", "")),
        _line(
            width,
            (style.of(job).word, state.style),
            (f"  {formatting.duration(job.seconds)} of training", ""),
            (f"  {why}", "dim"),
        ),
    ]


def _footer(model: LiveModel, controls: Controls, width: int, ascii_only: bool) -> list[Text]:
    """Return the last line: the open question, else the message about the last key, else the keys."""
    if controls.question is not None:
        # The keys come first, so that they are seen in a narrow terminal.
        return [_line(width, ("y yes, n no: ", "bold reverse"), (f" {controls.question.text}", "bold"))]
    if controls.notice:
        return [_line(width, (controls.notice, "bold"))]
    paused = model.experiment is not None and model.experiment.state in (
        ExperimentState.PAUSED,
        ExperimentState.PAUSING,
    )
    keys = [
        ("?", "keys"),
        ("q", "quit"),
        ("s", f"sort: {controls.sort.value}"),
        ("jk" if ascii_only else "↑↓", "select"),
        ("l", "log"),
        ("p", "pause job"),
        ("P", "resume all" if paused else "pause all"),
    ]
    return [_hints(keys, width)]


def _help(controls: Controls, width: int) -> list[Text]:
    leaves = (
        "suspend the experiment and leave: its cluster ends with this command"
        if controls.owns_cluster
        else "leave; the experiment continues"
    )
    keys = [*_KEYS, ("q", leaves), ("Ctrl-C", controls.interrupt_effect)]
    size = max(len(key) for key, _ in keys)
    lines = [Text("keys", style="bold")]
    for key, meaning in keys:
        lines += _wrapped(f"  {key:<{size}}  ", meaning, width)
    return [*lines, _line(width, ("any key goes back", "dim"))]


def _log(model: LiveModel, controls: Controls, log: LogTail, width: int, height: int, ascii_only: bool) -> list[Text]:
    """Return the log screen: a title, the lines of the log, and the keys."""
    job = model.jobs.get(log.job)
    title: list[Part] = [(f"log of job {log.job}", "bold")]
    if job is not None:
        longest = model.length(job)
        position = f"{job.reached}/{longest}" if longest else str(job.reached)
        title.append((f"  {_mark(style.of(job), ascii_only)} {style.of(job).word}", style.of(job).style))
        title.append((f"  {position}", ""))
        if job.last_value is not None and model.experiment is not None:
            title.append((f"  {model.experiment.metric.name} {formatting.number(job.last_value)}", ""))
    if log.above:
        title.append((f"  {formatting.count(log.above, 'newer line')} below", "dim"))
    body = [_line(width, (line, "")) for line in log.window(width, max(1, height - 2 - bool(log.message)))]
    if log.message:
        body.append(_line(width, (log.message, "dim")))
    body += [Text("")] * (height - 2 - len(body))
    keys = [("q", "back"), ("jk" if ascii_only else "↑↓", "scroll"), ("g", "first line"), ("G", "newest line")]
    return [_line(width, *title), *body, _hints(keys, width)]


def _hints(keys: Sequence[tuple[str, str]], width: int) -> Text:
    """Return a line with keys and their meanings, as many as fit into `width` characters."""
    line = Text(no_wrap=True)
    for key, meaning in keys:
        gap = "  " if line else ""
        if line.cell_len + len(f"{gap}{key} {meaning}") > width:
            break
        line.append(f"{gap}{key}", "bold").append(f" {meaning}", "dim")
    return line


def _mark(look: JobLook, ascii_only: bool) -> str:
    return look.ascii if ascii_only else look.symbol


def _flowed(parts: Sequence[Sequence[Part]], width: int) -> list[Text]:
    """Return lines with groups of texts, three blanks apart. A group that does not fit into a line begins the next one."""
    lines: list[list[Part]] = [[]]
    used = 0
    for group in parts:
        size = sum(Text(text).cell_len for text, _ in group)
        if lines[-1] and used + 3 + size > width:
            lines.append([])
            used = 0
        if lines[-1]:
            lines[-1].append(("   ", ""))
            used += 3
        lines[-1].extend(group)
        used += size
    return [_line(width, *line) for line in lines]


def _wrapped(label: str, text: str, width: int) -> list[Text]:
    """Return a label in bold with a text to its right, on as many lines of `width` characters as the text needs."""
    room = max(10, width - len(label))
    words, rows = text.split(), [""]
    for word in words:
        if rows[-1] and len(rows[-1]) + 1 + len(word) > room:
            rows.append("")
        rows[-1] += f" {word}" if rows[-1] else word
    return [
        _line(width, (label if index == 0 else " " * len(label), "bold"), (row, "")) for index, row in enumerate(rows)
    ]


def _line(width: int, *parts: Part) -> Text:
    line = Text.assemble(*parts, no_wrap=True, overflow="ellipsis")
    line.truncate(width, overflow="ellipsis")
    return line


def _fitted(lines: Sequence[Text], height: int) -> Group:
    """Return the lines as one renderable. If they are more than `height`, the last line remains and lines before it are dropped."""
    if len(lines) > height:
        lines = [*lines[: height - 1], lines[-1]]
    return Group(*lines)
