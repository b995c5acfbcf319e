"""Finds plugins (policies, generators, predictors, solvers, commands) by entry-point name or as `module:Class`.

Built-in plugins are found like those of third parties: their distribution lists them in an entry-point group.
"""

from __future__ import annotations

import difflib
import inspect
import os
import re
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Final

from hopyard.errors import InvalidInput

POLICIES: Final = "hopyard.policies"
GENERATORS: Final = "hopyard.generators"
PREDICTORS: Final = "hopyard.predictors"
SOLVERS: Final = "hopyard.solvers"
COMMANDS: Final = "hopyard.commands"
TIMELINES: Final = "hopyard.timelines"
READERS: Final = "hopyard.readers"
DOCTOR: Final = "hopyard.doctor"
BACKUPS: Final = "hopyard.backups"
KINDS: Final = {
    "policy": POLICIES,
    "generator": GENERATORS,
    "predictor": PREDICTORS,
    "solver": SOLVERS,
    "command": COMMANDS,
}
"""The entry-point groups for third parties, by kind of plugin."""
BUILT_IN: Final = {POLICIES: "hopyard_policies", GENERATORS: "hopyard_hpgen"}
"""The packages of the built-in policies and generators, by group."""

_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


class PluginError(InvalidInput):
    """Raised if a plugin cannot be loaded; the message says which one, why, and which exist."""


def entries(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group in all installed distributions.

    They are cached until a folder on `sys.path` changes, because reading them takes milliseconds and policies load
    plugins whenever they are created.
    """
    return _entries(group, tuple((folder, _changed(folder)) for folder in sys.path))


@lru_cache(maxsize=64)
def _entries(group: str, folders: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=group))


def _changed(folder: str) -> int:
    """Return the modification time of a folder on the search path, in nanoseconds; 0 if it cannot be read."""
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0


def plugin_names(group: str) -> list[str]:
    """Return the names that installed distributions list in the entry-point group, sorted and without duplicates."""
    return sorted({entry.name for entry in entries(group)})


def is_built_in(group: str, name: str) -> bool:
    """Return whether a policy or generator is built in. Nothing is imported.

    An unknown entry-point name counts as built in: loading it fails before any foreign code runs.

    Args:
        group: `POLICIES` or `GENERATORS`.
        name: An entry-point name or an import path.
    """
    values = [name] if ":" in name else [entry.value for entry in entries(group) if entry.name == name]
    return all(value.partition(":")[0].partition(".")[0] == BUILT_IN[group] for value in values)


def load_plugin(group: str, name: str, base: type | None = None) -> object:
    """Import and return a plugin.

    Args:
        group: An entry-point group, such as `hopyard.generators`.
        name: An entry-point name (`random`) or an import path (`mypackage.search:Mine`).
        base: If given, the object must be a concrete class derived from it.

    Raises:
        PluginError: The name is unknown (the message lists the known ones), two distributions provide it, its import
            fails, or the object is not what `base` requires.
    """
    plugin = _import(group, name) if ":" in name else _find(group, name)
    if base is not None:
        _check(group, name, plugin, base)
    return plugin


def parameter_names(cls: type) -> list[str]:
    """Return the sorted names of the keyword parameters of a class.

    These are the parameters of its `__init__` and, if that accepts `**kwargs`, also those of its base class, and so on.
    """
    names = set[str]()
    for one in cls.__mro__[:-1]:
        if "__init__" not in vars(one):
            continue
        parameters = list(inspect.signature(vars(one)["__init__"]).parameters.values())[1:]
        names |= {each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
        if all(each.kind is not each.VAR_KEYWORD for each in parameters):
            break
    return sorted(names)


def unknown_parameters(cls: type, given: Iterable[str], own: Iterable[str] = ()) -> str:
    """Return an error text about parameters that a plugin class does not accept, to be put after the plugin's name.

    The text is empty if the class accepts all of them, or accepts `**kwargs` and therefore checks them itself.

    Args:
        cls: The class.
        given: Names of the parameters that the user specified.
        own: Names of parameters that the caller passes itself and users may not specify.
    """
    try:
        kinds = [each.kind for each in inspect.signature(cls).parameters.values()]
    except (TypeError, ValueError):
        return ""
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return ""
    return wrong_parameters(given, [name for name in parameter_names(cls) if name not in own])


def wrong_parameters(given: Iterable[str], takes: Sequence[str]) -> str:
    """Return an error text about unknown parameters, to be put after the plugin's name; empty if all are known.

    Args:
        given: Names of the parameters that the user specified.
        takes: Names of the known parameters.
    """
    wrong = sorted(set(given) - set(takes))
    if not wrong:
        return ""
    folded = {name.lower(): name for name in takes}
    near = difflib.get_close_matches(wrong[0].lower(), folded, n=1)
    hint = f"; did you mean {folded[near[0]]}?" if near else ""
    return f"has no parameter {', '.join(wrong)}; it takes: {', '.join(takes) or 'none'}{hint}"


def _find(group: str, name: str) -> object:
    found = {entry.value: entry for entry in entries(group) if entry.name == name}
    if not found:
        names = plugin_names(group)
        near = difflib.get_close_matches(name, names, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise PluginError(
            f"{group}: no plugin is called {name!r}{hint}; there are: {', '.join(names) or 'none'}; "
            "one of your own is named module:Class"
        )
    if len(found) > 1:
        claims = ", ".join(sorted(f"{value} from {_distribution(entry)}" for value, entry in found.items()))
        raise PluginError(
            f"{group}: {name!r} is claimed more than once: {claims}; name the one you mean as module:Class"
        )
    (entry,) = found.values()
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"{group}: {name!r} stands for {entry.value} from {_distribution(entry)}, "
            f"which failed to import: {type(error).__name__}: {error}"
        ) from error


def _import(group: str, path: str) -> object:
    file, _, name = path.partition(":")
    if not _PATH.fullmatch(path) or file.endswith(".py"):
        plain = f"{file.removesuffix('.py')}:{name}"
        hint = f" (did you mean {plain}? it is imported, as a module)" if _PATH.fullmatch(plain) else ""
        raise PluginError(f"{group}: {path!r} is not of the form package.module:Class{hint}")
    module_name, _, qualified = path.partition(":")
    plugin: object = _module(group, path, module_name)
    for part in qualified.split("."):
        if not hasattr(plugin, part):
            classes = sorted(
                key for key, value in vars(plugin).items() if isinstance(value, type) and not key.startswith("_")
            )
            near = difflib.get_close_matches(part, classes, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise PluginError(f"{group}: {path!r}: no {part} there{hint}; its classes: {', '.join(classes) or 'none'}")
        plugin = getattr(plugin, part)
    return plugin


def _module(group: str, path: str, name: str) -> ModuleType:
    try:
        return import_module(name)
    # An imported script may call sys.exit, which must not end the service that imports it.
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise PluginError(
                f"{group}: {path!r}: there is no module {error.name} on the search path of {sys.executable}; "
                "call hopyard in the folder where it lies, add that to PYTHONPATH, or install it"
            ) from error
        raise PluginError(f"{group}: {path!r}: importing {name} failed: {type(error).__name__}: {error}") from error


def _check(group: str, name: str, plugin: object, base: type) -> None:
    wanted = f"{base.__module__}.{base.__qualname__}"
    if not isinstance(plugin, type):
        raise PluginError(f"{group}: {name!r} is a {type(plugin).__name__}, and must be a class derived from {wanted}")
    if not issubclass(plugin, base):
        raise PluginError(f"{group}: {name!r} is a class that is not derived from {wanted}")
    if missing := sorted(getattr(plugin, "__abstractmethods__", ())):
        raise PluginError(f"{group}: {name!r} does not define {', '.join(missing)}, which {wanted} asks for")


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "an unnamed distribution"
