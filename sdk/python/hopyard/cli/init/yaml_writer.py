"""Writes an experiment file with a comment on each field. Fields that are not set are written as comments with their defaults."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from hopyard.spec.models import ExperimentSpec

_WIDTH: Final = 110
_PLAIN: Final = re.compile(r"-{0,2}[A-Za-z_./][\w./-]*(:\w+)?")
_LONG: Final = 100
_RESERVED: Final = frozenset({"null", "true", "false", "~", "", "nan", "inf"})
_PROGRAMS: Final = ("trainer", "command", "log")
_OPEN: Final = ("space", "log")
"""Sections that are always written in block style, one entry per line."""


def experiment_text(data: Mapping[str, Any], head: Sequence[str], notes: Mapping[str, Sequence[str]]) -> str:
    """Return the text of an experiment file.

    Args:
        data: The values of the fields to set, in the structure of the file.
        head: Comment lines at the beginning, without "#".
        notes: Additional comment lines before a field, by its name; "section.field" for a field in a section.
    """
    lines = [f"# {line}".rstrip() for line in head]
    for name, field in ExperimentSpec.model_fields.items():
        if name in _PROGRAMS and name not in data:
            continue
        section = _section(field.annotation)
        about = [*textwrap.wrap(field.description or "", _WIDTH), *notes.get(name, ())]
        lines += ["", *(f"# {line}" for line in about)]
        if section is None or name == "log":
            lines += _entry(name, data.get(name, field.get_default(call_default_factory=True)), set_=name in data)
        else:
            lines += _section_lines(name, section, data.get(name, {}), notes, f"{name}.")
    return "\n".join(lines) + "\n"


def _section_lines(
    name: str, section: type[BaseModel], values: Mapping[str, Any], notes: Mapping[str, Sequence[str]], place: str
) -> list[str]:
    lines = [f"{'' if values else '#'}{name}:"]
    for key, field in section.model_fields.items():
        about = [*textwrap.wrap(field.description or "", _WIDTH - 2), *notes.get(place + key, ())]
        lines += [f"  # {line}" for line in about]
        inner = _section(field.annotation)
        if inner is not None:
            body = _section_lines(key, inner, values.get(key, {}), notes, f"{place}{key}.")
        else:
            body = _entry(key, values.get(key, field.get_default(call_default_factory=True)), set_=key in values)
        lines += [f"  {line}" for line in body]
    return lines


def _entry(name: str, value: Any, *, set_: bool) -> list[str]:
    if not set_:
        shown = None if value is PydanticUndefined else value
        return [f"#{name}: {flow(shown)}"]
    line = f"{name}: {flow(value)}"
    if isinstance(value, Mapping) and (name in _OPEN or len(line) > _LONG):
        return [f"{name}:", *(f"  {inner}" for key, item in value.items() for inner in _entry(key, item, set_=True))]
    return [line]


def flow(value: Any) -> str:
    """Return a value as YAML in flow style, which fits on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_text(str(key))}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str):
        return _text(value)
    return json.dumps(value)


def _text(value: str) -> str:
    if _PLAIN.fullmatch(value) and value.lower() not in _RESERVED:
        return value
    if "'" not in value and value.isprintable():
        return f"'{value}'"
    return json.dumps(value)


def _section(annotation: Any) -> type[BaseModel] | None:
    """Return the model class of a section if the type of a field is one, else None."""
    for one in (annotation, *get_args(annotation)):
        if isinstance(one, type) and issubclass(one, BaseModel):
            return one
    return None
