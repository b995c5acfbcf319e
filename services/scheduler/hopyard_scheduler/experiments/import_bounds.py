"""Bounds of the numbers in imported events.

The scheduler bounds the numbers of its clients and agents before it records them. The events of an imported journal come from a file,
so they are checked here. Recovery does not check them again.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, get_args

from hopyard._common.bounded_json import MAX_COUNT
from hopyard._net.rpc.values import MAX_SECONDS
from hopyard.errors import InvalidInput
from hopyard.policy.vocabulary import ENDLESS, Command

MAX_TIME: Final = 253_402_300_799
"""The end of the year 9999 in seconds since the Unix epoch. Later times cannot be shown as a date."""

_WHOLE: Final = (-(2**63), 2**63 - 1)
_NEXT: Final = (0, 2**62)  # Later numbers of the same kind must fit into int64, too.
_SMALL: Final = (0, 2**30)  # The same for int32.

_BOUNDS: Final[Mapping[str, tuple[int, int | float]]] = {
    **dict.fromkeys(("position", "max_position", "jobs", "slots", "cpus", "gpus"), (0, ENDLESS)),
    **dict.fromkeys(("size", "fetched", "examples"), (0, MAX_COUNT)),
    **dict.fromkeys(("attempt", "rank"), _SMALL),
    **dict.fromkeys(("sequence", "order", "number", "again", "more"), _NEXT),
    **dict.fromkeys(("at", "deadline"), (0, MAX_TIME)),
    "seconds": (0, MAX_SECONDS),
}
"""The lowest and the highest number in the fields with a name, in all events. Other integers must fit into int64."""

_COMMANDS: Final = get_args(Command)


def check_time(at: float) -> float:
    """Return `at` if it is a time between 1970 and the year 9999, in seconds since the Unix epoch.

    Raises:
        InvalidInput: The time is earlier, later or NaN.
    """
    _check("at", at, _BOUNDS["at"])
    return at


def check_numbers(event: object) -> None:
    """Raise InvalidInput if a number of an event is beyond its bounds. The message names the field, such as `body.snapshot.size`.

    Integers in commands of a policy, hyperparameters and answers only need to fit into int64: the core refuses invalid commands.
    """
    _walk("", event, _WHOLE)


def _walk(path: str, value: Any, bounds: tuple[int, int | float]) -> None:
    if isinstance(value, int | float):
        if isinstance(value, int) or bounds is not _WHOLE:
            _check(path, value, bounds)
    elif names := _names(value.__class__):
        known = {} if isinstance(value, _COMMANDS) else _BOUNDS
        for name in names:
            _walk(f"{path}.{name}" if path else name, getattr(value, name), known.get(name, _WHOLE))
    elif isinstance(value, Mapping):
        for name, item in value.items():
            _walk(f"{path}.{name!s:.80}", item, _WHOLE)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _walk(f"{path}[{index}]", item, bounds)


def _check(path: str, found: float, bounds: tuple[int, int | float]) -> None:
    if not bounds[0] <= found <= bounds[1]:
        raise InvalidInput(f"{path}: found {found!r:.40}, allowed is {bounds[0]} to {bounds[1]}")


@functools.cache
def _names(cls: type) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass or a named tuple; empty: `cls` is another class."""
    return tuple(field.name for field in fields(cls)) if is_dataclass(cls) else getattr(cls, "_fields", ())
