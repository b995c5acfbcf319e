"""Draws the live view: a pure function of the model, the size of the terminal and the time."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hopyard._common import formatting
from hopyard.cli.live import job_pools, style
from hopyard.cli.live.curves import bar, resample, scale, sparkline
from hopyard.cli.live.model import LiveModel
from hopyard.client.display.outcome import is_asked
from hopyard.client.types import Job, JobState

_MIN_ROWS = 1
_ROOM_FOR_REASONS = 16
_MOST_REASONS = 2


def render(model: LiveModel, width: int, height: int, now: float, *, ascii_only: bool = False) -> RenderableType:
    """Draw the live view.

    Args:
        model: The model to draw.
        width: Number of characters per line. Narrow terminals get fewer columns.
        height: Number of lines. The table of jobs gets the lines that the header leaves.
        now: Current time in monotonic seconds, on the clock of the model's changes.
        ascii_only: Use only ASCII characters.

    Returns:
        A rich renderable that fits into `width` and `height`, but shows at least one job.
    """
    header = [_title(model, width, now), _progress(model, width, now, ascii_only), *_best(model, width)]
    if job_pools.labelled(model.jobs.values()):
        header.append(_pools(model, width, ascii_only))
    if height >= _ROOM_FOR_REASONS:
        header += _waits(model, width, ascii_only)
    if model.trouble:
        header.append(_line(width, (model.trouble, "bold red")))
    if model.note:
        header.append(_line(width, (model.note, "bold")))
    if not model.jobs:
        return Group(*header)
    room = max(_MIN_ROWS, height - len(header) - 3)
    shown = interesting(model)
    rest = shown[room:]
    table = job_table(model, shown[:room], width, ascii_only=ascii_only)
    return Group(*header, table, _rest(rest, width))


def interesting(model: LiveModel) -> list[Job]:
    """Return the jobs of the model in the order of the live view.

    The best job is first, then the jobs on slots, then the others by state, in the order of `JobLook.rank`: failed, suspended, held,
    completed, stopped, pending, being created, terminated, not started. Among the jobs on slots, and within each state, better values
    come first.
    """
    best = model.best()

    def key(job: Job) -> tuple[int, int, float, int, str]:
        first = 0 if best is not None and job.id == best.id else 1
        live = 0 if job.state.live else style.of(job).rank
        return first, live, model.merit(job), len(job.id), job.id

    return sorted(model.jobs.values(), key=key)


def job_table(model: LiveModel, jobs: list[Job], width: int, *, ascii_only: bool = False) -> Table:
    """Format jobs as a table that fits into `width` characters.

    Args:
        model: The model, which has the curves and the length of the jobs.
        jobs: The jobs, one row each, in this order.
        width: Number of characters per line. Narrow tables have fewer columns.
        ascii_only: Use only ASCII characters.
    """
    wide, medium, narrow = width >= 100, width >= 76, width < 54
    spark_width = 24 if width >= 120 else 14 if medium else 8
    metric = model.experiment.metric.name if model.experiment else "value"
    table = Table(box=None, expand=True, pad_edge=False, header_style="dim", width=width, padding=(0, 1, 0, 0))
    table.add_column("job", no_wrap=True, min_width=5)
    if not narrow:
        table.add_column("hyperparameters", no_wrap=True, overflow="ellipsis", ratio=1)
    labelled = medium and job_pools.labelled(model.jobs.values())
    if labelled:
        table.add_column("p", no_wrap=True, min_width=6)
    table.add_column("position", justify="right", no_wrap=True)
    if medium:
        table.add_column("last", justify="right", no_wrap=True, min_width=6)
    table.add_column(f"best {metric}" if wide else "best", justify="right", no_wrap=True, min_width=6)
    table.add_column("curve", no_wrap=True, width=spark_width)

    curves = {job.id: resample(model.curve(job.id), spark_width) for job in jobs}
    low, high = scale(curves.values())
    best = model.best()
    for job in jobs:
        look = style.of(job)
        mark = look.ascii if ascii_only else look.symbol
        row: list[RenderableType] = [Text(f"{mark} {job.id}", style=look.style)]
        if not narrow:
            shown = (
                job.reason
                if job.state is JobState.FAILED and job.reason
                else formatting.hyperparameters(job.hyperparameters)
            )
            row.append(Text(formatting.first_line(shown)))
        if labelled:
            row.append(job_pools.mark(job, ascii_only=ascii_only))
        row.append(_position(model, job, wide, ascii_only))
        if medium:
            row.append(Text(formatting.number(job.last_value)))
        is_best = best is not None and job.id == best.id
        row.append(Text(formatting.number(job.best_value), style=style.BEST if is_best else ""))
        row.append(Text(sparkline(curves[job.id], low, high, ascii_only=ascii_only), style=look.style))
        table.add_row(*row)
    return table


def _position(model: LiveModel, job: Job, wide: bool, ascii_only: bool) -> Text:
    longest = model.length(job)
    if longest is None:
        return Text(str(job.reached))
    shown = Text(f"{job.reached}/{longest}")
    if wide:
        filled = bar(job.reached / longest, 10, ascii_only=ascii_only)
        shown = Text.assemble((filled, style.of(job).style), " ", f"{shown.plain:>{2 * len(str(longest)) + 1}}")
    return shown


def _title(model: LiveModel, width: int, now: float) -> Text:
    experiment = model.experiment
    if experiment is None:
        return _line(width, (f"{model.source or 'experiment'}  waiting for the cluster", "dim"))
    parts: list[tuple[str, str]] = [
        (experiment.name, "bold"),
        (f"  {experiment.id}", "dim"),
        (f"  {experiment.state.name}", style.EXPERIMENT[experiment.state]),
        (f"  {formatting.duration(model.elapsed(now))}", ""),
    ]
    if left := model.remaining(now):
        parts.append((f", {left}", ""))
    if experiment.reason and not is_asked(experiment):
        parts.append((f"  {experiment.reason}", "dim"))
    if experiment.warning:
        parts.append((f"  {experiment.warning}", style.WARNING))
    return _line(width, *parts)


def _progress(model: LiveModel, width: int, now: float, ascii_only: bool) -> Text:
    busy, held = model.slots_in_use()
    total = model.slots if model.slots is not None else max(held, model.experiment.share if model.experiment else 0)
    parts: list[tuple[str, str]] = [
        (f"slots {busy} busy{f', {held} held' if held != busy else ''} of {max(total, held)}", ""),
        (f"   {silence}", "bold red")
        if (silence := model.silence(now))
        else (f"   {model.rate(now):.1f} reports/s", ""),
        ("  ", ""),
    ]
    for look, amount in model.counts().items():
        mark = look.ascii if ascii_only else look.symbol
        parts.append((f" {mark} {amount} {look.word}", look.style))
    return _line(width, *parts)


def _best(model: LiveModel, width: int) -> list[Text]:
    experiment = model.experiment
    if experiment is None or model.best_value is None:
        return [_line(width, (model.without_best(), "bold" if model.metrics else "dim"))]
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
        parts.append((f"  {formatting.hyperparameters(best.hyperparameters)}", ""))
    return [_line(width, *parts)]


def _pools(model: LiveModel, width: int, ascii_only: bool) -> Text:
    """Return a line, cut to `width` characters, with the number of promising, opportunistic and terminated jobs.

    With `ascii_only`, the symbols of these pools are ASCII characters.
    """
    parts: list[tuple[str, str]] = [("policy", "")]
    for pool, amount in job_pools.counts(model.jobs.values()).items():
        symbol, plain, look = job_pools.LOOKS[pool]
        parts.append((f"  {plain if ascii_only else symbol} {amount} {pool.value}", look))
    return _line(width, *parts)


def _waits(model: LiveModel, width: int, ascii_only: bool) -> list[Text]:
    """Return the most frequent reasons why jobs wait, one line each, at most two lines; empty: no job waits.

    Lines are cut to `width` characters. With `ascii_only`, the symbols of the job states are ASCII characters.
    """
    lines = []
    for state, amount, reason in model.waits()[:_MOST_REASONS]:
        look = style.JOB[state]
        mark = look.ascii if ascii_only else look.symbol
        lines.append(_line(width, (f"{mark} {formatting.count(amount, 'job')}", look.style), (f"  {reason}", "dim")))
    return lines


def _rest(jobs: list[Job], width: int) -> Text:
    if not jobs:
        return Text("")
    counted: dict[str, int] = {}
    for job in jobs:
        name = style.of(job).word
        counted[name] = counted.get(name, 0) + 1
    words = ", ".join(f"{amount} {state}" for state, amount in counted.items())
    return _line(width, (f"and {formatting.count(len(jobs), 'more job')}: {words}", "dim"))


def _line(width: int, *parts: tuple[str, str]) -> Text:
    line = Text.assemble(*parts, no_wrap=True, overflow="ellipsis")
    line.truncate(width, overflow="ellipsis")
    return line
