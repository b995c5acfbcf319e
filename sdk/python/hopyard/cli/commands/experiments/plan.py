"""The command `plan`: reports the amount of training that a search needs, without running it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hopyard.cli.options import Json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hopyard.cli.commands.experiments.plan_preview import PlanPreview


def register(app: typer.Typer) -> None:
    """Add the command `plan` to the command line `app`."""
    app.command(rich_help_panel="Train")(plan)


def plan(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="Experiment files, or files with only `space` and `stop`.", show_default=False
        ),
    ],
    slots: Annotated[
        int | None,
        typer.Option("--slots", min=1, metavar="N", help="Slots. [default: the file's]", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Tell what a search would train, before it runs.

    Trials whose sequences have the same values up to a position have the same training up to there. The plan reports
    the number of trials; the total steps, if each trial is trained alone; the unique steps, if common beginnings are
    trained once; the merge rate (total by unique steps); the critical path (the longest chain of steps); and a lower
    bound for the length of any schedule on N slots. If the program saves no checkpoint and the policy suspends jobs, it
    also reports how many steps are expected to be trained again.

    All trials of the file's generator are assumed to train up to `stop.max_iterations`; steps are units of the
    position. A file without a program needs only `space` and `stop`, and is searched as a grid.

    Several files are reported one by one and together. Trials of two files share training if the scheduler regards it as
    the same: equal code in their folders (except experiment files), program, interpreter, environment, working
    directory, unit, seed, snapshot provider, and threads and GPUs per job. Files without a program have no code.

    **Examples:** `hopyard plan experiment.yaml --slots 8`, `hopyard plan a.yaml b.yaml --json | jq .merge_rate`
    """
    from hopyard.cli.commands.experiments.plan_preview import plan_notes, planned
    from hopyard.cli.output import emit, emit_json, plain, say

    alone, together = planned(files, slots)
    for note in plan_notes(files):
        say(note)
    if json:
        emit_json({**plain(together), "files": [{"file": file, **plain(one)} for file, one in alone]})
    else:
        emit(_table([(str(file), one) for file, one in alone], together))


def _table(alone: list[tuple[str, PlanPreview]], together: PlanPreview) -> RenderableType:
    from rich.table import Table

    rows = alone if len(alone) == 1 else [*alone, ("all together", together)]
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("file")
    for column in (
        "trials",
        "total steps",
        "unique steps",
        "merge rate",
        "critical path",
        f"least on {together.slots}",
    ):
        table.add_column(column, justify="right", no_wrap=True)
    if together.retrained_steps:
        table.add_column("retrained steps", justify="right", no_wrap=True)
    for name, one in rows:
        counts = (one.critical_path, one.makespan_lower_bound)
        rate = f"{one.merge_rate:.3f}"
        again = [str(one.retrained_steps)] if together.retrained_steps else []
        figures = (one.trials, one.total_steps, one.unique_steps)
        table.add_row(name, *map(str, figures), rate, *map(str, counts), *again)
    return table
