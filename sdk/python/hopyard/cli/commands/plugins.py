"""`plugins`: policies, generators, predictors, solvers and commands that are installed."""

from __future__ import annotations

import json as json_text
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hopyard.cli.completion import complete_plugin
from hopyard.cli.options import Json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hopyard.cli.catalog import Plugin, PluginParameter


_MOST_WIDTH: Final = 110
"""Sentences are broken to so many characters at most, also where there is no terminal."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Set up")(plugins)


def plugins(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="Show this one in full.", show_default=False, autocompletion=complete_plugin
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List policies, generators, predictors, solvers and commands.

    Each with its parameters and their defaults, and whose it is. One that cannot be loaded says why; then the exit code is 1.

    **Examples:** `hopyard plugins`, `hopyard plugins default`, `hopyard plugins --json | jq '.[].name'`
    """
    import difflib

    from hopyard.cli.catalog import catalog
    from hopyard.cli.errors import EXIT_FAILED
    from hopyard.cli.output import emit, emit_json, width
    from hopyard.errors import NotFound
    from hopyard.plugins import KINDS, plugin_names

    found = catalog(name)
    if not found:
        there = [known for group in KINDS.values() for known in plugin_names(group)]
        near = difflib.get_close_matches(name or "", there, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        own = "; a module:Class has no entry here until it is installed" if ":" in (name or "") else ""
        raise NotFound(f"no plugin is called {name!r}{hint}; there are: {', '.join(there)}{own}")
    if json:
        emit_json(found)
    else:
        emit(_table(found, min(width(), _MOST_WIDTH)) if name is None else _in_full(found))
    if any(one.error for one in found):
        raise typer.Exit(EXIT_FAILED)


def _table(found: list[Plugin], width: int) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim", width=width)
    table.add_column("kind", no_wrap=True)
    table.add_column("name", no_wrap=True)
    table.add_column("what it does")
    table.add_column("from", no_wrap=True)
    first: dict[str, str] = {}
    for one in found:
        same = first.setdefault(one.error, one.name)
        why = one.error if same == one.name else f"as {same}"
        said = Text(f"cannot be loaded: {why}", style="bold red") if one.error else Text(one.summary)
        if one.parameters:
            said = Text.assemble(said, "\n", (", ".join(map(_short, one.parameters)), "dim"))
        table.add_row(one.kind, one.name, said, f"{one.distribution} {one.version}")
    hint = "hopyard plugins NAME shows one in full; one of your own is named module:Class in the experiment file"
    return Group(table, Text(hint, style="dim"))


def _in_full(found: list[Plugin]) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = []
    for one in found:
        head = Text.assemble(
            (one.name, "bold"), f"  {one.kind} from {one.distribution} {one.version}, ", (one.value, "dim")
        )
        parts += [Text(""), head] if parts else [head]
        if one.error:
            parts.append(Text(f"cannot be loaded: {one.error}", style="bold red"))
        if one.description:
            parts += [Text(""), Text(one.description)]
        if one.parameters:
            table = Table(box=None, pad_edge=False, header_style="dim")
            for column in ("parameter", "default", "type"):
                table.add_column(column)
            for parameter in one.parameters:
                table.add_row(parameter.name, _default(parameter) or "required", parameter.annotation)
            parts += [Text(""), table]
    return Group(*parts)


def _short(parameter: PluginParameter) -> str:
    return parameter.name if parameter.required else f"{parameter.name}={_default(parameter)}"


def _default(parameter: PluginParameter) -> str:
    return "" if parameter.required else json_text.dumps(parameter.default)
