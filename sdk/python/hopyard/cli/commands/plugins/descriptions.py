"""Describes the commands that installed distributions add to `hopyard`.

A command is described without importing it, since `hopyard --help` must not load a service.
"""

from __future__ import annotations

import ast
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Final

PANELS: Final = {
    **dict.fromkeys(("scheduler", "agent", "appstat", "hpgen"), "Services"),
    **dict.fromkeys(("events", "replay", "rungs", "tree"), "Look"),
    "simulate": "Try",
}
"""The help panel of each plugin command of Hopyard. Plugin commands of other distributions are shown in the panel `OTHERS`."""

OTHERS: Final = "From other distributions"


def distribution(entry: EntryPoint) -> str:
    """Return the name of the distribution that installed a plugin, or "another distribution" if it is unknown."""
    return entry.dist.name if entry.dist is not None else "another distribution"


def describe(entry: EntryPoint) -> str:
    """Return the description of a plugin command for `--help`.

    It is the first line of the docstring, read from the source file; else a sentence with the name of the distribution.
    """
    return _first_line(entry) or f"From {distribution(entry)}."


def _first_line(entry: EntryPoint) -> str:
    source = _source(entry.module)
    if source is None:
        return ""
    try:
        tree = ast.parse(source.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == entry.attr:
            return (ast.get_docstring(node) or "").partition("\n")[0].strip()
    return ""


def _source(module: str) -> Path | None:
    """Return the source file of a module without importing its parent packages, or None if there is none."""
    name, path, found = "", None, None
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        try:
            found = PathFinder.find_spec(name, path)
        except (ImportError, OSError, ValueError):
            return None
        if found is None:
            return None
        path = list(found.submodule_search_locations or [])
    origin = found.origin if found is not None else None
    return Path(origin) if origin is not None and origin.endswith(".py") else None
