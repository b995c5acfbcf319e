"""Types of the fields in the experiment file: pydantic types with the checks and conversions that users need."""

from __future__ import annotations

import re
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from hopyard._runtime.datasets.names import check_data_name
from hopyard._runtime.job_log import SMALLEST_LOG
from hopyard.space import Problem, Space, SpaceError, show
from hopyard.spec.units import seconds, size_bytes

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TRAINER = re.compile(r"([^:\s]+\.py|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):[A-Za-z_]\w*")
_PLUGIN = re.compile(r"remote:[A-Za-z_][\w.-]*|[A-Za-z_][\w.-]*(:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_PATTERN = 1000
_SPACE_SCHEMA = {"type": "object", "minProperties": 1, "description": "names to written parameters"}


def problems_error(problems: list[Problem]) -> PydanticCustomError:
    """Return one pydantic error for several mistakes; `hopyard.spec.error_text` expands it to one message for each mistake."""
    text = "; ".join(problem.message for problem in problems)
    return PydanticCustomError("problems", "{text}", {"text": text, "problems": problems})


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(
            f"needs 1 to 100 letters, digits, '.', '_' or '-', the first a letter or digit, found {show(value)}"
        )
    return value


def _trainer(value: str) -> str:
    if not _TRAINER.fullmatch(value):
        raise ValueError(f"needs file.py:Class or package.module:Class, found {show(value)}")
    return value


def _plugin(value: str) -> str:
    if not _PLUGIN.fullmatch(value):
        raise ValueError(f"needs a plugin's name or module:Class, found {show(value)}")
    return value


def _pattern(value: str) -> str:
    if len(value) > _LONGEST_PATTERN:
        raise ValueError(f"needs a regular expression of at most {_LONGEST_PATTERN} characters, found {len(value)}")
    try:
        groups = re.compile(value).groups
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"needs a regular expression, found {show(value)}: {error}") from None
    if groups < 1:
        raise ValueError(f"needs a group in parentheses around the number, such as acc=([0-9.]+), found {show(value)}")
    if groups > 1:
        raise ValueError(
            f"needs exactly one group, around the number; write (?:...) for other parentheses, and a separate pattern "
            f"for each metric; found {groups} groups in {show(value)}"
        )
    return value


def _variable(value: str) -> str:
    if not _VARIABLE.fullmatch(value):
        raise ValueError(f"needs letters, digits and _, the first no digit, found {show(value)}")
    if value.startswith("HOPYARD_"):
        raise ValueError(f"names that begin with HOPYARD_ are Hopyard's own, found {show(value)}")
    return value


def _path(value: str) -> str:
    if not value or not value.isprintable():
        raise ValueError(f"needs a path, found {show(value)}")
    return value


def _folder(value: str) -> str:
    if not value.startswith("/") and ".." in value.split("/"):
        raise ValueError(
            f"needs a folder inside the experiment's code, or an absolute one on the nodes, found {show(value)}"
        )
    return value


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _as_strings(value: object) -> object:
    return (value,) if isinstance(value, str) else _as_tuple(value)


def _not_empty(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise ValueError("needs a program and its arguments, such as [python, train.py], found []")
    if not value[0]:
        raise problems_error([Problem((0,), 'needs a program, found ""')])
    return value


def _given(value: str) -> str:
    if "\0" in value:
        raise ValueError(f"needs text that a program can be given, without NUL, found {show(value)}")
    return value


def _log_limit(value: int) -> int:
    if value < SMALLEST_LOG:
        raise ValueError(f"needs at least 64KiB (65536 bytes), found {value}")
    return value


def _space(value: object) -> Space:
    if isinstance(value, Space):
        space = value
    else:
        try:
            # Space.from_dict raises an error if it is not a mapping.
            space = Space.from_dict(cast(dict[str, Any], value))
        except SpaceError as error:
            raise problems_error(list(error.problems)) from None
    if not space:
        raise ValueError("needs at least one parameter, found {}")
    return space


def _by_name(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


Name = Annotated[str, AfterValidator(_name)]
"""A name of letters, digits, `.`, `_` and `-`."""

DataName = Annotated[str, AfterValidator(check_data_name)]
"""Name of a registered data set."""

TrainerPath = Annotated[str, AfterValidator(_trainer)]
"""`file.py:Class` or `package.module:Class`."""

PluginName = Annotated[str, AfterValidator(_plugin)]
"""An entry-point name or `module:Class`."""

Pattern = Annotated[str, AfterValidator(_pattern)]
"""A regular expression with one group."""

Variable = Annotated[str, AfterValidator(_variable)]
"""Name of an environment variable that does not begin with HOPYARD_."""

Variables = Annotated[
    tuple[Variable, ...], BeforeValidator(_as_strings), AfterValidator(lambda names: tuple(dict.fromkeys(names)))
]
"""A list of names of environment variables; a single name needs no list."""

FilePath = Annotated[str, AfterValidator(_path)]
"""A path on the nodes."""

FolderPath = Annotated[str, AfterValidator(_path), AfterValidator(_folder)]
"""A folder: relative to the code, or an absolute path on the nodes."""

GivenText = Annotated[str, AfterValidator(_given)]
"""Text without NUL."""

Command = Annotated[tuple[GivenText, ...], BeforeValidator(_as_tuple), AfterValidator(_not_empty)]
"""A program and its arguments."""

Strings = Annotated[tuple[str, ...], BeforeValidator(_as_strings)]
"""A list of texts; a single text needs no list."""

Seconds = Annotated[float, BeforeValidator(seconds)]
"""Seconds, also written 30s, 15m, 2h or 1d."""

Bytes = Annotated[int, BeforeValidator(size_bytes)]
"""A number of bytes, also written 500MB or 10GiB."""

SpaceField = Annotated[
    Space,
    PlainValidator(_space),
    PlainSerializer(Space.to_dict, return_type=dict[str, Any]),
    WithJsonSchema(_SPACE_SCHEMA),
]
"""A search space in its written form."""

LogBytes = Annotated[int, BeforeValidator(size_bytes), AfterValidator(_log_limit)]
"""A number of bytes, also written 500KB or 10MiB; at least 64KiB."""

NameOrMapping = BeforeValidator(_by_name)
"""Allows a name instead of a mapping for a plugin without parameters."""
