"""Prints results on stdout, as text or as exactly one JSON document, and messages on stderr."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hopyard._common.formatting import printable

_UNLIMITED: Final = 100_000


def plain(value: object) -> Any:
    """Convert a value to types that JSON can represent.

    Dataclasses become objects, enums their values, paths strings, and numbers that are not finite null.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def emit_json(value: object) -> None:
    """Print a value as one JSON document on stdout."""
    sys.stdout.write(json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    sys.stdout.flush()


def emit(renderable: Any) -> None:
    """Print a string or a rich renderable, the result of a command, on stdout."""
    show(renderable)


def show(renderable: Any, *, stderr: bool = False) -> None:
    """Print a string or a rich renderable on stdout or stderr. Without a terminal, lines are neither truncated nor wrapped."""
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False, soft_wrap=isinstance(renderable, str))
    if not console.is_terminal:
        console = Console(stderr=stderr, highlight=False, soft_wrap=isinstance(renderable, str), width=_UNLIMITED)
    console.print(printable(renderable) if isinstance(renderable, str) else renderable, markup=False)


def width() -> int:
    """Return the number of characters of a line on stdout: the terminal's width, or 100,000 without a terminal."""
    from rich.console import Console

    console = Console()
    return console.width if console.is_terminal else _UNLIMITED


def height() -> int | None:
    """Return the number of lines of the terminal that stdout is; None: stdout is not a terminal."""
    from rich.console import Console

    console = Console()
    return console.height if console.is_terminal else None


def fills_terminal() -> bool:
    """Return whether stdout is a terminal that a full-screen view can be drawn on."""
    from rich.console import Console

    return sys.stdout.isatty() and not Console().is_dumb_terminal


def say(line: str) -> None:
    """Print a line on stderr, for messages that are not part of the result."""
    sys.stderr.write(printable(line) + "\n")
    sys.stderr.flush()
