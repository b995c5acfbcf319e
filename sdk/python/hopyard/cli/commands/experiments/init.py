"""The command `init`: writes the first experiment file for a script."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hopyard.cli.options import Json


def register(app: typer.Typer) -> None:
    """Add the command `init` to the command line `app`."""
    app.command(rich_help_panel="Set up")(init)


def init(
    script: Annotated[
        Path | None,
        typer.Argument(metavar="[SCRIPT]", help="Your training script, or any program.", show_default=False),
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The file to write.")] = Path(
        "experiment.yaml"
    ),
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    json: Json = False,
) -> None:
    """Write an experiment file for your script.

    The script is analyzed but not run. A class derived from hopyard.Trainer becomes the trainer; a script that calls
    hopyard.report becomes a command; the metrics of any other program are parsed from its output. Options with a
    numeric default or with choices are suggested as the space. The file has a comment on each setting and can be run
    unchanged.

    **Examples:** `hopyard init train.py`, `hopyard init src/train.py -o src/experiment.yaml --force`
    """
    from hopyard.cli.errors import WrongUse
    from hopyard.cli.init.plan import plan_for
    from hopyard.cli.output import emit_json, say
    from hopyard.spec import load_spec

    if output.is_dir():
        raise WrongUse(f"{output}: this is a folder; name the file in it: -o {output / 'experiment.yaml'}")
    if output.exists() and not force:
        raise WrongUse(f"{output} exists already; --force overwrites it, -o FILE writes another file")
    plan = plan_for(script, output.parent)
    text = plan.text(script.name if script is not None else "your script")
    load_spec(text, str(output))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text, encoding="utf-8")
    metric, space = plan.data["metric"], plan.data["space"]
    if json:
        emit_json(
            {
                "file": output,
                "mode": plan.mode,
                "metric": metric,
                "space": space,
                "todo": plan.todo,
                "hints": plan.hints,
            }
        )
        return
    how = {"trainer": "a trainer", "command": "a command that reports", "log": "a program whose output is read"}
    better = "larger" if metric["mode"] == "max" else "smaller"
    say(f"wrote {output}: {how[plan.mode]}, {metric['name']} ({better} is better), space of {', '.join(space)}")
    for item in plan.todo:
        say(f"  to do: {item}")
    for hint in plan.hints:
        say(f"  note: {hint}")
    say(f"check it, then: hopyard run {output}")
