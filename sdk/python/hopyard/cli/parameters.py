"""Converts text, paths and absent values of a command line without pydantic.

Recent versions of typer import pydantic for every value, even for an absent one. That takes longer than the query of a command.

Typer offers no way to use other classes for parameters, and converts every value with pydantic, whatever its annotation is. Therefore
`process_value`, a public method of click's parameters, is replaced in each parameter of the command.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import typer
from typer.models import OptionInfo

_UNCHECKED: Final = OptionInfo()
_CHECKS: Final = ("parser", "exists", "file_okay", "dir_okay", "writable", "resolve_path", "allow_dash", "path_type")


def convert_directly(command: Any) -> None:
    """Make a command, and if it is a group its commands, convert simple values without pydantic.

    Simple values are absent ones, defaults, text, lists of text, and paths that typer does not check. The results and the errors
    remain those of typer, which still converts all other values. Commands in groups of a group are unchanged.

    Args:
        command: A command or group that typer built.
    """
    for one in (command, *getattr(command, "commands", {}).values()):
        for parameter in one.get_params(typer.Context(one, **one.context_settings)):
            if hasattr(parameter, "type_descriptor"):  # older versions of typer do not use pydantic
                _convert_directly(parameter)


def _convert_directly(parameter: Any) -> None:
    convert = parameter.process_value
    several = getattr(parameter, "multiple", False) or parameter.nargs == -1

    def process_value(context: typer.Context, value: Any) -> Any:
        if parameter.required and not value:
            return convert(context, value)
        if value is None:
            converted: Any = () if several else None
        elif value is parameter.default and not several:
            converted = value
        elif _is_simple(parameter.type_descriptor, value):
            converted = parameter.type_descriptor.annotation(value)
        else:
            return convert(context, value)
        return converted if parameter.callback is None else parameter.callback(context, parameter, converted)

    parameter.process_value = process_value


def _is_simple(wanted: Any, value: Any) -> bool:
    """Return whether calling the type of a parameter with `value` gives the result of typer."""
    if any(getattr(wanted.parameter_info, check) != getattr(_UNCHECKED, check) for check in _CHECKS):
        return False
    if wanted.annotation == list[str]:
        return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)
    if not isinstance(value, str):
        return False
    # typer refuses an existing path that is not readable
    return wanted.annotation is str or (
        wanted.annotation is Path and (os.access(value, os.R_OK) or not os.path.exists(value))
    )
