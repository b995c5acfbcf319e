"""The command `plugins`: lists the installed policies, generators, predictors, solvers and commands.

A plugin that cannot be loaded is listed with its error.
"""

from __future__ import annotations

import inspect
import json as json_text
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hopyard._common.plugins import KINDS, PluginError, load_plugin, plugin_names
from hopyard.cli.commands.plugins.descriptions import describe, distribution
from hopyard.cli.completion import complete_plugin
from hopyard.cli.options import Json

if TYPE_CHECKING:
    from rich.console import RenderableType

_MOST_WIDTH: Final = 110
"""Maximum width of the table in characters, also without a terminal."""


def register(app: typer.Typer) -> None:
    """Add the command `plugins` to the command line `app`."""
    app.command(rich_help_panel="Set up")(plugins)


def plugins(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Show all details of this plugin.",
            show_default=False,
            autocompletion=complete_plugin,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List policies, generators, predictors, solvers and commands.

    Each plugin has its parameters, their defaults, and its distribution. A plugin that cannot be loaded has its error;
    the exit code is then 1, as for an unknown NAME.

    **Examples:** `hopyard plugins`, `hopyard plugins default`, `hopyard plugins --json | jq '.[].name'`
    """
    import difflib

    from hopyard.cli.errors import EXIT_FAILED
    from hopyard.cli.output import emit, emit_json, width
    from hopyard.errors import NotFound

    found = catalog(name)
    if not found:
        there = [known for group in KINDS.values() for known in plugin_names(group)]
        near = difflib.get_close_matches(name or "", there, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        own = "; a module:Class is listed only after it is installed" if ":" in (name or "") else ""
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
    hint = "hopyard plugins NAME shows one in full; your own plugin is named module:Class in the experiment file"
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


_GIVEN: Final = ("self", "space", "seed")
"""Constructor arguments of plugins that Hopyard passes, so that an experiment file cannot set them."""


@dataclass(frozen=True, slots=True)
class PluginParameter:
    """A parameter of a plugin that an experiment file may set.

    Attributes:
        name: Name of the parameter.
        required: Whether it has no default.
        default: The default; meaningless if it is required.
        annotation: Its type as text; empty: unknown.
    """

    name: str
    required: bool
    default: Any
    annotation: str


@dataclass(frozen=True, slots=True)
class Plugin:
    """The description of an installed plugin.

    Attributes:
        kind: "policy", "generator", "predictor", "solver" or "command".
        name: Name in an experiment file or on the command line.
        distribution: Name of the distribution that installed it.
        version: Version of that distribution.
        value: Its location, `module:name`.
        summary: First paragraph of its docstring.
        description: The complete docstring.
        parameters: Parameters of its constructor.
        error: Why it cannot be loaded; empty: it can.
    """

    kind: str
    name: str
    distribution: str
    version: str
    value: str
    summary: str = ""
    description: str = ""
    parameters: tuple[PluginParameter, ...] = ()
    error: str = ""


def catalog(name: str | None = None) -> list[Plugin]:
    """Return the descriptions of all plugins, or of those with the name `name`, ordered by kind and name. Empty: there are none."""
    return [
        described(kind, entry)
        for kind, group in KINDS.items()
        for entry in sorted(entry_points(group=group), key=lambda entry: (entry.name, entry.value))
        if name in (None, entry.name)
    ]


def described(kind: str, entry: EntryPoint) -> Plugin:
    """Load the plugin at an entry point and return its description. If it cannot be loaded, the description has the error.

    `kind` is a key of `KINDS`: "policy", "generator", "predictor", "solver" or "command".
    """
    known = Plugin(
        kind=kind,
        name=entry.name,
        distribution=distribution(entry),
        version=entry.dist.version if entry.dist is not None else "",
        value=entry.value,
        summary=describe(entry) if kind == "command" else "",
    )
    try:
        loaded = load_plugin(KINDS[kind], entry.name, base(kind))
        return _told(known, loaded)
    except PluginError as error:
        if (cause := error.__cause__) is not None:  # the table already shows the rest of the message
            return _failed(known, f"{type(cause).__name__}: {cause}")
        return _failed(known, str(error).partition(": ")[2] or str(error))
    except Exception as error:  # noqa: BLE001 - a third party's metaclass or docstring may do anything
        return _failed(known, f"{type(error).__name__}: {error}")


def base(kind: str) -> type | None:
    """Return the class from which plugins of a kind must be derived; None: there is none, as for commands."""
    if kind == "policy":
        from hopyard.policy import Policy

        return Policy
    if kind == "generator":
        from hopyard.generator import Generator

        return Generator
    if kind == "predictor":
        from hopyard.predictor import Predictor

        return Predictor
    if kind == "solver":
        from hopyard.solver import Solver

        return Solver
    return None


def _told(known: Plugin, loaded: object) -> Plugin:
    text = (inspect.getdoc(loaded) or "") if callable(loaded) else ""
    parameters = _parameters(loaded) if isinstance(loaded, type) else ()
    return Plugin(
        known.kind,
        known.name,
        known.distribution,
        known.version,
        known.value,
        summary=" ".join(text.partition("\n\n")[0].split()) or known.summary,
        description=text,
        parameters=parameters,
    )


def _failed(known: Plugin, error: str) -> Plugin:
    return Plugin(
        known.kind, known.name, known.distribution, known.version, known.value, summary=known.summary, error=error
    )


def _parameters(cls: type) -> tuple[PluginParameter, ...]:
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    found = inspect.signature(cls.__init__).parameters.values()  # type: ignore[misc]  # `cls` is exactly the class to describe
    return tuple(
        PluginParameter(
            name=one.name,
            required=one.default is inspect.Parameter.empty,
            default=None if one.default is inspect.Parameter.empty else _plain(one.default),
            annotation="" if one.annotation is inspect.Parameter.empty else _words(one.annotation),
        )
        for one in found
        if one.name not in _GIVEN and one.kind not in variadic
    )


def _plain(value: object) -> object:
    """Return the default of a parameter as a value of an experiment file, or as text if it cannot be written there."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return repr(value)


def _words(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
