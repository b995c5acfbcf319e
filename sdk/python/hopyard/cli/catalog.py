"""What plugins there are, described from what they say themselves; one that cannot be loaded says why, and spoils no other."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from hopyard.cli.plugin_commands import distribution, told
from hopyard.plugins import KINDS, PluginError, load_plugin

_GIVEN: Final = ("self", "space", "seed")
"""Arguments that Hopyard gives, so that nobody can set them in an experiment file."""


@dataclass(frozen=True, slots=True)
class PluginParameter:
    """A parameter of a plugin, as an experiment file may set it; `default` only if it is not `required`."""

    name: str
    required: bool
    default: Any
    annotation: str


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin.

    Attributes:
        kind: "policy", "generator", "predictor", "solver" or "command".
        name: As an experiment file or the command line names it.
        distribution: Whose it is.
        version: Of that distribution.
        value: Where it is: `module:name`.
        summary: The first paragraph of its docstring.
        description: The whole docstring.
        parameters: What it takes.
        error: Why it cannot be used; empty: it can.
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
    """All plugins, by kind and name; with `name` those of that name."""
    return [
        described(kind, entry)
        for kind, group in KINDS.items()
        for entry in sorted(entry_points(group=group), key=lambda entry: (entry.name, entry.value))
        if name in (None, entry.name)
    ]


def described(kind: str, entry: EntryPoint) -> Plugin:
    """One plugin, loaded if that can be."""
    known = Plugin(
        kind=kind,
        name=entry.name,
        distribution=distribution(entry),
        version=entry.dist.version if entry.dist is not None else "",
        value=entry.value,
        summary=told(entry) if kind == "command" else "",
    )
    try:
        loaded = load_plugin(KINDS[kind], entry.name, base(kind))
        return _told(known, loaded)
    except PluginError as error:
        if (cause := error.__cause__) is not None:  # all else that the message says stands beside it
            return _failed(known, f"{type(cause).__name__}: {cause}")
        return _failed(known, str(error).partition(": ")[2] or str(error))
    except Exception as error:  # noqa: BLE001 - a third party's metaclass or docstring may do anything
        return _failed(known, f"{type(error).__name__}: {error}")


def base(kind: str) -> type | None:
    """What a plugin of this kind must be derived from; None: anything."""
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
    found = inspect.signature(cls.__init__).parameters.values()  # type: ignore[misc]  # of the class as it is
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
    """A default as an experiment file would say it; what it cannot say as text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return repr(value)


def _words(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
