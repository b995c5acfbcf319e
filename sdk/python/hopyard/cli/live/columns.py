"""Orders jobs, and formats them as lines of a table that fits into a width: hyperparameters that vary, state, position, value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from hopyard._common import formatting
from hopyard.cli.live import job_pools, style
from hopyard.cli.live.controls import SortOrder
from hopyard.cli.live.curves import bar, resample, scale, sparkline
from hopyard.cli.live.model import LiveModel
from hopyard.client.display import outcome
from hopyard.client.display.short_reason import failed_attempt
from hopyard.client.types import Job

_WIDE: Final = 100
"""Width in characters from which columns are two characters apart instead of one."""

_CURVES: Final = (8, 14, 24, 40)
"""Widths of the curve: the first one is used if there is room, the next ones when all other columns are shown."""

_LONG_NAME: Final = 8
"""Number of characters to which the names of hyperparameters are cut if not all of them fit."""

_LEAST_REASON: Final = 30
_MOST_REASON: Final = 80
_NUMBER: Final = 7
_BAR: Final = 10


def ordered(model: LiveModel, sort: SortOrder) -> list[Job]:
    """Return the jobs of the model in an order. Jobs that are equal in it are in order of creation."""

    def created(job: Job) -> tuple[int, str]:
        return len(job.id), job.id

    best = model.best()

    def by_state(job: Job) -> tuple[int, int, float, tuple[int, str]]:
        first = 0 if best is not None and job.id == best.id else 1
        live = 0 if job.state.live else style.of(job).rank
        return first, live, model.merit(job), created(job)

    keys: dict[SortOrder, Callable[[Job], Any]] = {
        SortOrder.STATE: by_state,
        # Of equal values the experiment's best job, whose value was reported first, comes first.
        SortOrder.VALUE: lambda job: (model.merit(job), best is None or job.id != best.id, created(job)),
        SortOrder.TIME: lambda job: (-job.seconds, created(job)),
        SortOrder.JOB: created,
    }
    return sorted(model.jobs.values(), key=keys[sort])


def retried(job: Job) -> str:
    """Return " (attempt N)" for a job with a run whose last run failed and that has reported nothing new since, else an empty str."""
    failed = failed_attempt(job) if job.state.live else None
    return f" (attempt {failed.attempt})" if failed is not None else ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table.

    Attributes:
        name: Its heading.
        width: Its width in characters.
        cell: Returns the text and the style of the cell of a job.
        right: Whether cells are aligned to the right.
    """

    name: str
    width: int
    cell: Callable[[Job], tuple[str, str]]
    right: bool = False


class _Room:
    """The characters of a line that no column uses yet.

    Args:
        left: Number of these characters; it may be negative.
        gap: Number of blanks between two columns.
    """

    def __init__(self, left: int, gap: int) -> None:
        self.left = left
        self._gap = gap

    def take(self, characters: int) -> None:
        """Use characters."""
        self.left -= characters

    def fits(self, column: Column, *, instead_of: int = 0) -> bool:
        """Take the room of a column, and return whether there was enough. If not, no room is left for columns that are less important.

        Args:
            column: The column.
            instead_of: Number of characters that the column frees.
        """
        needed = column.width + self._gap - instead_of
        fitting = needed <= self.left
        self.left = self.left - needed if fitting else 0
        return fitting


class JobTable:
    """A table of jobs that fits into a width.

    If there is little room, columns are dropped, in this order: the reason, the width of the curve, the bar of the position, the
    training time, the last value, the curve, the pool, the name of the state (its symbol remains), and the hyperparameters from the
    last one. The id, the position and the best value are always shown. A column `+N` stands for N dropped hyperparameters.

    Args:
        model: The model, which has the curves and the length of the jobs.
        jobs: The jobs to show, in this order.
        width: Number of characters per line, at least 20.
        ascii_only: Use only ASCII characters.
        by_time: Whether the jobs are sorted by training time, which is then shown before all other columns that can be dropped.
        selected: Id of the selected job, whose line is marked; None: none.
    """

    def __init__(
        self,
        model: LiveModel,
        jobs: Sequence[Job],
        width: int,
        *,
        ascii_only: bool = False,
        by_time: bool = False,
        selected: str | None = None,
    ) -> None:
        self._model = model
        self._jobs = jobs
        self._width = width
        self._ascii = ascii_only
        self._selected = selected
        self._gap = 2 if width >= _WIDE else 1
        self._best = model.best()
        self.columns = self._chosen(by_time)

    def lines(self) -> list[Text]:
        """Return the heading and one line for each job. No line is wider than the table."""
        heading = "".join(self._aligned(column, column.name) for column in self.columns).rstrip()
        lines = [Text(heading, style="dim", no_wrap=True, overflow="ellipsis")]
        for job in self._jobs:
            line = Text(no_wrap=True, overflow="ellipsis")
            for column in self.columns:
                text, look = column.cell(job)
                line.append(self._aligned(column, text), look)
            line.rstrip()
            if job.id == self._selected:
                # One colour: the symbol still shows the state.
                line = Text(line.plain, style="reverse", no_wrap=True, overflow="ellipsis")
                line.pad_right(max(0, self._width - line.cell_len))
            lines.append(line)
        for line in lines:
            line.truncate(self._width, overflow="ellipsis")
        return lines

    def _aligned(self, column: Column, text: str) -> str:
        size = cell_len(text)
        if size > column.width:
            text = set_cell_size(text, column.width - 1) + ("~" if self._ascii else "…")
        blank = " " * max(0, column.width - size)
        return (blank + text if column.right else text + blank) + " " * self._gap

    def _chosen(self, by_time: bool) -> list[Column]:
        """Return the columns that fit, in the order in which they are shown."""
        model = self._model
        identity = Column(" job", max(4, 1 + max(map(len, model.jobs), default=1)), self._id)
        # The heading of the symbol is blank.
        symbol = Column("", 1, lambda job: (self._symbol(job), style.of(job).style))
        longest = max((model.length(job) or 0 for job in self._jobs), default=0)
        position = self._position_column(longest)
        numbers = [formatting.number(value) for job in self._jobs for value in (job.best_value, job.last_value)]
        digits = max(_NUMBER, *map(len, numbers), 0)
        best = Column("best", digits, self._best_value, right=True)
        time = Column("time", 7, lambda job: (formatting.duration(job.seconds or None), ""), right=True)
        room = _Room(self._width + self._gap, self._gap)
        for column in (identity, symbol, position, best):
            room.take(column.width + self._gap)

        shown = [time] if by_time and room.fits(time) else []
        values = self._values(room.left)
        # Without room for all hyperparameters, there is none for columns that are dropped before them.
        whole = [column.name for column in values] == model.hyperparameters()
        room.take(sum(column.width + self._gap for column in values) if whole else room.left)
        state = self._state_column()
        if room.fits(state, instead_of=symbol.width + self._gap):
            symbol = state
        pool = Column("p", 6, self._pool)
        pools = [pool] if job_pools.labelled(model.jobs.values()) and room.fits(pool) else []
        curves = {job.id: model.curve(job.id) for job in self._jobs}
        size = _CURVES[0] if any(curves.values()) and room.fits(Column("curve", _CURVES[0], self._id)) else 0
        last = Column("last", digits, lambda job: (formatting.number(job.last_value), ""), right=True)
        lasts = [last] if room.fits(last) else []
        if time not in shown and self._width >= _WIDE and room.fits(time):
            shown.append(time)
        if longest and room.fits(Column("", _BAR + 1, self._id), instead_of=self._gap):
            position = replace(position, name="position", width=position.width + _BAR + 1, cell=self._position_with_bar)
        for wider in _CURVES[1:]:
            if size and wider - size <= room.left:
                room.take(wider - size)
                size = wider
        metric = f"best {model.experiment.metric.name}" if model.experiment else "best"
        if (extra := max(0, len(metric) - best.width)) <= room.left:
            room.take(extra)
            best = replace(best, name=metric, width=best.width + extra)
        columns = [identity, *values, symbol, *pools, position, best, *lasts, *shown]
        return [*columns, *([self._curve(size, curves)] if size else []), *self._reason_columns(room.left)]

    def _position_column(self, longest: int) -> Column:
        """Return the column of the position; `longest` is the length of the longest job, 0 without a limit."""
        digits = max([len(str(job.reached)) for job in self._jobs], default=1)
        width = 2 * max(digits, len(str(longest))) + 1 if longest else digits
        return Column("pos" if width < len("position") else "position", max(3, width), self._position, right=True)

    def _state_column(self) -> Column:
        """Return the column of the state with its symbol. It has room for every state, and for the ends of the shown jobs."""
        shown = [len(style.of(job).word + retried(job)) for job in self._jobs]
        words = max(*(len(look.word) for look in style.JOB.values()), *shown, 0)
        return Column("state", 2 + words, self._state)

    def _reason_columns(self, room: int) -> list[Column]:
        """Return the column of the reasons of jobs within `room` characters; none if there is too little room or no reason."""
        experiment, width = self._model.experiment, min(room - self._gap, _MOST_REASON)
        if experiment is None:
            return []
        reasons = {job.id: outcome.why(experiment, job) for job in self._jobs}
        if width < _LEAST_REASON or not any(reasons.values()):
            return []
        return [Column("why", width, lambda job: (reasons[job.id], "dim"))]

    def _values(self, room: int) -> list[Column]:
        """Return a column for each hyperparameter, within `room` characters.

        If they do not fit, their names are cut; if that is not enough, the last ones are replaced by a column `+N`.
        """
        most = max(12, self._width // 5)
        names = self._model.hyperparameters()

        def columns(longest: int) -> list[Column]:
            sizes = {name: min(most, max(self._model.widths[name], min(cell_len(name), longest))) for name in names}
            return [Column(name, sizes[name], partial(self._value, name)) for name in names]

        def size(columns: Sequence[Column]) -> int:
            return sum(column.width + self._gap for column in columns)

        found = columns(most)
        if size(found) <= room:
            return found
        found = columns(_LONG_NAME)
        if size(found) <= room:
            return found
        for count in range(len(found) - 1, -1, -1):
            more = Column(f"+{len(found) - count}", 1 + len(str(len(found) - count)), lambda _: ("", ""))
            if size(found[:count]) + more.width + self._gap <= room:
                return [*found[:count], more]
        return []

    def _id(self, job: Job) -> tuple[str, str]:
        mark = ">" if job.id == self._selected else " "
        is_best = self._best is not None and job.id == self._best.id
        return f"{mark}{job.id}", style.BEST if is_best else ""

    def _symbol(self, job: Job) -> str:
        look = style.of(job)
        return look.ascii if self._ascii else look.symbol

    def _state(self, job: Job) -> tuple[str, str]:
        return f"{self._symbol(job)} {style.of(job).word}{retried(job)}", style.of(job).style

    def _value(self, name: str, job: Job) -> tuple[str, str]:
        given = job.hyperparameters
        return (formatting.value(given[name]) if name in given else formatting.NOTHING), ""

    def _position(self, job: Job) -> tuple[str, str]:
        longest = self._model.length(job)
        return (f"{job.reached}/{longest}" if longest is not None else str(job.reached)), ""

    def _position_with_bar(self, job: Job) -> tuple[str, str]:
        longest = self._model.length(job)
        text = self._position(job)[0]
        if not longest:
            return text, ""
        steps = 2 * len(str(longest)) + 1
        filled = bar(job.reached / longest, _BAR, ascii_only=self._ascii)
        return f"{filled} {text:>{steps}}", style.of(job).style

    def _best_value(self, job: Job) -> tuple[str, str]:
        is_best = self._best is not None and job.id == self._best.id
        return formatting.number(job.best_value), style.BEST if is_best else ""

    def _pool(self, job: Job) -> tuple[str, str]:
        mark = job_pools.mark(job, ascii_only=self._ascii)
        return mark.plain, str(mark.style)

    def _curve(self, size: int, curves: dict[str, Sequence[float]]) -> Column:
        drawn = {job: resample(curve, size) for job, curve in curves.items()}
        low, high = scale(drawn.values())

        def cell(job: Job) -> tuple[str, str]:
            line = sparkline(drawn[job.id], low, high, ascii_only=self._ascii)
            return line, style.of(job).style

        return Column("curve", size, cell)
