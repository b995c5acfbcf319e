"""A stage tree as text: one line for each stage; if the lines are limited, one line also represents several small stages.

See `hopyard_tools.commands.tree` for the terms stage and trial.
"""

from __future__ import annotations

import heapq
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from hopyard._common import formatting
from hopyard.cli.live import style
from hopyard.client.types import JobState
from hopyard.plots.data.stages import Totals, Tree, totals
from hopyard.policy.stages import StageState, StageView

WIDE = 12
"""Maximum number of branches of a stage with their own lines, unless all are shown."""

_NAMED = 6
_LEAST = 16

Row: TypeAlias = list[str | Text]

_STYLES = {
    StageState.DONE: style.JOB[JobState.COMPLETED],
    StageState.RUNNING: style.JOB[JobState.RUNNING],
    StageState.WAITING: style.JOB[JobState.PENDING],
    StageState.UNWANTED: style.JOB[JobState.CREATING],
}


@dataclass
class _Branch:
    """A stage and all stages that continue from it. A stage is a range of positions that the same trials train equally.

    Attributes:
        stage: The stage.
        children: The branches that continue from the end of the stage.
        positions: The number of positions in the stage and all stages that continue from it.
        open: True if the children get lines of their own.
    """

    stage: StageView
    children: list[_Branch] = field(default_factory=list)
    positions: int = 0
    open: bool = False

    def all(self) -> Iterator[StageView]:
        """Yield the stages of the branch, first its own stage."""
        stack = [self]
        while stack:
            branch = stack.pop()
            yield branch.stage
            stack += branch.children


@dataclass(frozen=True)
class TreeLine:
    """A line of the printed stage tree. A stage is a range of positions that the same trials train in the same way.

    Attributes:
        lead: The characters at the beginning of the line that draw the tree.
        stages: The stage of the line, or the stages that the line represents together.
        together: True if the line represents several stages together.
    """

    lead: str
    stages: tuple[StageView, ...]
    together: bool = False


def lines(tree: Tree, most: int | None = None, trial: str | None = None) -> list[TreeLine]:
    """Return the lines of the printed stage tree.

    A stage is a range of positions that the same trials train in the same way. A branch is a stage and all stages that
    continue from it.

    Args:
        tree: The stage tree.
        most: The approximate maximum number of lines: the branches with the most positions get lines of their own, and
            one line represents several others. None: one line for every stage.
        trial: Show only the path of this trial and its branches; None: show all trials.
    """
    roots = _branches(tree)
    wide = None if most is None else WIDE
    _open(roots, most, wide, trial)
    found: list[TreeLine] = []
    _draw(roots, "", wide, trial, found)
    return found


def _branches(tree: Tree) -> list[_Branch]:
    made: dict[int | None, _Branch] = {}
    roots: list[_Branch] = []
    for stage in tree.stages:
        made[stage.number] = _Branch(stage)
        (roots if stage.parent is None else made[stage.parent].children).append(made[stage.number])
    for branch in reversed(made.values()):
        branch.positions += branch.stage.length
        if branch.stage.parent is not None:
            made[branch.stage.parent].positions += branch.positions
    return roots


def _open(roots: list[_Branch], most: int | None, wide: int | None, trial: str | None) -> None:
    """Set `open` of the branches whose children get lines of their own: the largest branches first, within the limit.

    Args:
        roots: The branches that start at position 0.
        most: The approximate maximum number of lines; None: no limit.
        wide: The maximum number of children with lines of their own; None: no limit.
        trial: Open only the branches on the path of this trial; None: all.
    """
    shown = _shown(roots, wide, trial)
    room = (most or 0) - len(shown) - sum(bool(root.children) for root in shown) - (len(shown) < len(roots))
    heap = [(-branch.positions, branch.stage.number, branch) for branch in shown]
    heapq.heapify(heap)
    while heap:
        _, _, branch = heapq.heappop(heap)
        if not branch.children or (trial is not None and trial not in branch.stage.trials):
            continue
        shown = _shown(branch.children, wide, trial)
        # The line that represents all of them is replaced, so a single child needs no additional line.
        cost = len(shown) - 1 + sum(bool(child.children) for child in shown) + (len(shown) < len(branch.children))
        if most is not None and trial is None and cost > room:
            continue
        room -= cost
        branch.open = True
        for child in shown:
            heapq.heappush(heap, (-child.positions, child.stage.number, child))


def _shown(children: list[_Branch], wide: int | None, trial: str | None) -> list[_Branch]:
    """Return the children that get lines of their own, in their order.

    Args:
        children: The children of one branch.
        wide: The maximum number of lines; None: no limit. If there are more children, the `wide` - 1 branches with the
            most positions are selected, because one line represents all others.
        trial: A branch of this trial is selected first; None: none.
    """
    if wide is None or len(children) <= wide:
        return children

    def rank(branch: _Branch) -> tuple[bool, int, int]:
        return (trial not in branch.stage.trials, -branch.positions, branch.stage.number)

    chosen = {id(branch) for branch in sorted(children, key=rank)[: wide - 1]}
    return [branch for branch in children if id(branch) in chosen]


def _draw(roots: list[_Branch], lead: str, wide: int | None, trial: str | None, found: list[TreeLine]) -> None:
    """Append the lines of the branches to `found`. It is iterative, because a tree may be too deep for recursion.

    Args:
        roots: The branches.
        lead: The characters before each line.
        wide: The maximum number of children with lines of their own; None: no limit.
        trial: The trial whose branches are selected first; None: none.
        found: Receives the lines.
    """
    stack: list[tuple[str, str, list[_Branch], bool]] = []

    def push(children: list[_Branch], lead: str, branching: bool) -> None:
        shown = _shown(children, wide, trial)
        kept = {id(child) for child in shown}
        rest = [child for child in children if id(child) not in kept]
        items: list[tuple[list[_Branch], bool]] = [([child], False) for child in shown]
        if rest:
            items.append((rest, True))
        for index, (some, together) in reversed(list(enumerate(items))):
            last = index == len(items) - 1
            mark, below = ("└─ " if last else "├─ ", "   " if last else "│  ") if branching else ("", "")
            stack.append((lead + mark, lead + below, some, together))

    push(roots, lead, len(roots) > 1)
    while stack:
        mark, below, some, together = stack.pop()
        if together:
            found.append(TreeLine(mark, tuple(stage for branch in some for stage in branch.all()), together=True))
            continue
        (branch,) = some
        found.append(TreeLine(mark, (branch.stage,)))
        if branch.open:
            push(branch.children, below, len(branch.children) > 1)
        elif branch.children:
            inside = tuple(stage for child in branch.children for stage in child.all())
            found.append(TreeLine(below + "└─ ", inside, together=True))


def shown(
    tree: Tree, title: str, most: int | None = None, trial: str | None = None, width: int = 10_000
) -> RenderableType:
    """Return the tree with a title and the sums of its positions by state, to be printed on a terminal.

    A stage is a range of positions that the same trials train in the same way.

    Args:
        tree: The tree.
        title: The first line.
        most: The approximate maximum number of lines; None: one line for every stage.
        trial: Show only the path of this trial and its branches; None: show all trials.
        width: The width of the terminal in characters.
    """
    found = lines(tree, most, trial)
    rows = [_together(line) if line.together else _row(line, tree) for line in found]
    differences = max((Text.assemble(row[-1]).cell_len for row in rows), default=0)
    bare = Console(width=10_000, file=io.StringIO()).measure(_table(rows, 0)).maximum
    table = _table(rows, min(differences, max(width - bare - 2, _LEAST)))
    parts: list[RenderableType] = [Text(title), _summary(totals(tree.stages), tree.unit), Text(""), table]
    hidden = sum(len(line.stages) for line in found if line.together)
    if hidden:
        parts.append(
            Text(f"{formatting.count(hidden, 'stage')} put together; --all has each, --job JOB one trial's", "dim")
        )
    return Group(*parts)


def _table(rows: Sequence[Row], last: int) -> Table:
    """Return the table of the lines.

    Args:
        rows: The cells of each line.
        last: The width in characters of the last column, which shows the values in which branches differ; 0: the table
            does not have this column.
    """
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("stage", "state", "trials", "reused", "time", "run", "trained for"):
        number = column in ("trials", "reused", "time")
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    if last:
        table.add_column("from here on", width=max(last, len("from here on")), no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(row if last else row[:-1]))
    return table


def _summary(found: Totals, unit: str) -> Text:
    standing = (
        (StageState.DONE, found.done),
        (StageState.RUNNING, found.running),
        (StageState.WAITING, found.waiting),
        (StageState.UNWANTED, found.unwanted),
    )
    line = Text(f"{formatting.count(found.trials, 'trial')}, {found.positions} {unit} in all, ")
    line.append(f"{found.unique} different: ")
    for index, (state, positions) in enumerate(one for one in standing if one[1]):
        look = _STYLES[state]
        here = f" ({positions - found.earlier} here)" if found.earlier and state is StageState.DONE else ""
        line.append(f"{', ' if index else ''}{look.symbol} {positions} {state.value}{here}", look.style)
    return line.append(f"; {found.reused} reused")


def _row(line: TreeLine, tree: Tree) -> Row:
    (stage,) = line.stages
    look = _STYLES[stage.state]
    return [
        f"{line.lead}{stage.start}-{stage.end}",
        Text(f"{look.symbol} {stage.state.value}", style=look.style),
        str(len(stage.trials)),
        str(stage.reused or ""),
        _time(stage.seconds, expected=stage.state is not StageState.DONE),
        f"{stage.by} on {stage.slot}" if stage.by and stage.slot else stage.by,
        _named(stage.ends),
        Text(
            " ".join(f"{name}={formatting.value(value)}" for name, value in tree.values.get(stage.number, {}).items())
        ),
    ]


def _together(line: TreeLine) -> Row:
    stages = line.stages
    state = Text()
    for one, look in _STYLES.items():
        amount = sum(stage.state is one for stage in stages)
        if amount:
            state.append(f"{' ' if state else ''}{look.symbol} {amount}", look.style)
    trials = {trial for stage in stages for trial in stage.trials}
    seconds = None if any(stage.seconds is None for stage in stages) else sum(stage.seconds or 0.0 for stage in stages)
    expected = any(stage.state is not StageState.DONE for stage in stages)
    return [
        Text(f"{line.lead}{formatting.count(len(stages), 'stage')}", style="dim"),
        state,
        Text(str(len(trials)), style="dim"),
        "",
        Text(_time(seconds, expected=expected), style="dim"),
        "",
        "",
        "",
    ]


def _time(seconds: float | None, *, expected: bool) -> str:
    if seconds is None:
        return formatting.NOTHING
    return ("~" if expected else "") + formatting.short_time(seconds)


def _named(trials: Sequence[str]) -> str:
    more = len(trials) - _NAMED
    return ", ".join(trials[:_NAMED]) + (f" and {more} more" if more > 0 else "")
