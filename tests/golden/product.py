"""The only module that uses the product's Python code: it finds all of it by roles in names.toml."""

from __future__ import annotations

import functools
import importlib.util
import io
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, get_args

from tests.golden.canonical import Canon
from tests.golden.names import REPOSITORY, Names

NAMES: Final = Names.load()
CANON: Final = Canon(NAMES)

_POLICIES: Final = "hopyard.policies"
"""The entry-point group of policies, which is part of the product's interface."""

Observer = Callable[[Any, list[Any]], None]


def policies() -> dict[str, type]:
    """Return the classes of the built-in policies, by the names that experiment files use."""
    found = {entry.name: entry for entry in entry_points(group=_POLICIES) if entry.value.startswith("hopyard_")}
    return {name: found[name].load() for name in sorted(found)}


@contextmanager
def patched(role: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Replace the code of a role by what `wrap` returns for it, while the context is open."""
    owner, name = NAMES.owner(role)
    original = getattr(owner, name)
    setattr(owner, name, wrap(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Call `observer` with each event that an engine handles and its effects, while the context is open."""

    def wrap(handle: Callable[[Any, Any], list[Any]]) -> Callable[[Any, Any], list[Any]]:
        @functools.wraps(handle)
        def wrapper(core: Any, event: Any) -> list[Any]:
            effects = handle(core, event)
            observer(event, effects)
            return effects

        return wrapper

    with patched("core_handle", wrap):
        yield


@contextmanager
def probe(name: str, cls: type, parameters: Mapping[str, Any]) -> Iterator[None]:
    """Register a policy as a probe of the fault simulation, while the context is open."""
    probes: dict[str, type] = NAMES.find("schedule_probes")

    def begin(self: Any) -> None:
        cls.__init__(self, **parameters)  # type: ignore[misc]

    probes[name] = type(cls.__name__, (cls,), {"__init__": begin})
    try:
        yield
    finally:
        del probes[name]


def probes() -> dict[str, type]:
    """Return the probe policies of the fault simulation."""
    found: dict[str, type] = NAMES.find("schedule_probes")
    return dict(found)


def schedule(name: str, seed: int, events: int) -> Any:
    """Run one seeded schedule of the fault simulation and return its outcome."""
    return NAMES.find("schedule_run")(name, seed, events)


def search(seed: str, policy: str) -> tuple[Any, Callable[[], str]]:
    """Draw a random search and return its case and a function that runs it and returns the verdict."""
    folder = str(NAMES.path("benchmarks"))
    if folder not in sys.path:
        sys.path.append(folder)
    case = NAMES.find("search_draw")(seed, [policy])
    return case, functools.partial(NAMES.find("search_verdict"), case)


@contextmanager
def results(found: list[Any]) -> Iterator[None]:
    """Append the result of every simulation that a random search runs to `found`, while the context is open."""

    def wrap(simulate: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(simulate)
        def wrapper(*arguments: Any, **named: Any) -> Any:
            found.append(simulate(*arguments, **named))
            return found[-1]

        return wrapper

    with patched("search_simulate", wrap):
        yield


def event_types() -> tuple[type, ...]:
    """Return the classes of the events in journals."""
    return get_args(NAMES.find("event_union"))


def effect_types() -> tuple[type, ...]:
    """Return the classes of the effects of the engine."""
    return get_args(NAMES.find("effect_union"))


def command(*arguments: str) -> tuple[int, str, str]:
    """Run a `hopyard` command in this process and return its exit code, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code: int = NAMES.find("command_line")(list(arguments))
    return code, out.getvalue(), err.getvalue()


def origins() -> dict[str, Path]:
    """Return the folder of each of the product's packages, which identifies the working tree."""
    found = {name: importlib.util.find_spec(name) for name in _packages()}
    return {name: Path(spec.origin).resolve() for name, spec in found.items() if spec is not None and spec.origin}


def _packages() -> list[str]:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    return [Path(path).name for path in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]


def command_module() -> str:
    """Return the module that `python -m` runs as the `hopyard` command."""
    module: str = NAMES.find("command_line").__module__
    return module
