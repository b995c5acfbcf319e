"""Builds the experiment of a search from an objective function and the arguments of `Client.search`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from hopyard.client.searches import DEFAULT_METRIC
from hopyard.client.submission import Submission
from hopyard.errors import InvalidInput
from hopyard.search.code import FunctionCode, function_code
from hopyard.space import Parameter, Space
from hopyard.spec import canonical_json, parse_spec

_PROGRAM: Final = "hopyard.script.objective"
_OWN_FIELDS: Final = ("trainer", "command", "log", "working_directory")


def search_submission(
    function: Callable[..., Any],
    space: Space | Mapping[str, Any],
    *,
    metric: str | Mapping[str, Any],
    mode: Literal["max", "min"] | None,
    jobs: int | None,
    max_iterations: int | None,
    max_time: float | str | None,
    slots: int | None,
    folder: str | Path | None,
    fields: Mapping[str, Any],
) -> Submission:
    """Return the validated experiment of a search, ready to be created. The arguments are those of `Client.search`.

    Raises:
        InvalidInput: The function cannot be sent, or an argument is wrong or given twice.
        SpecError: The resulting specification is invalid. The error lists all mistakes.
    """
    for name in _OWN_FIELDS:
        if name in fields:
            raise InvalidInput(
                f"search: found {name}, which the function replaces; client.create() takes experiments with {name}"
            )
    code = function_code(function, folder)
    described = _metric(metric, mode)
    data = {"name": _name(code.function), **fields, "metric": described, "command": _command(code, described["name"])}
    if not isinstance(space, Space) and any(isinstance(one, Parameter) for one in dict(space).values()):
        space = Space(space)
    data["space"] = space.to_dict() if isinstance(space, Space) else space
    if isinstance(space, Space) and space.constraints:
        data["constraints"] = [*(one.text for one in space.constraints), *fields.get("constraints", ())]
    limits = {"jobs": jobs, "max_iterations": max_iterations, "max_time": max_time}
    data["stop"] = _section("stop", fields, limits)
    data["resources"] = _section("resources", fields, {"slots": slots})
    spec = parse_spec(data, "search")
    return Submission(canonical_json(spec, defaults=False), "search", spec, code.folder, code.files)


def _command(code: FunctionCode, metric: object) -> list[str]:
    given = (code.module, code.function, str(metric))
    return ["python", "-m", _PROGRAM, *(one.replace("{", "{{").replace("}", "}}") for one in given)]


def _name(function: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", function).strip("_") or "objective"


def _metric(metric: str | Mapping[str, Any], mode: str | None) -> dict[str, Any]:
    found = dict(metric) if isinstance(metric, Mapping) else {"name": metric}
    found.setdefault("name", DEFAULT_METRIC)
    if mode is not None:
        if found.get("mode", mode) != mode:
            raise InvalidInput(f"search: mode is {mode!r} and metric has the mode {found['mode']!r}; give one of them")
        found["mode"] = mode
    if "mode" not in found:
        raise InvalidInput(
            f"search: mode is missing for the metric {found['name']}; allowed: mode='max' (larger values are better) or mode='min'"
        )
    return found


def _section(name: str, fields: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section of the specification: the mapping in `fields`, with the arguments that are not None added.

    Args:
        name: Name of the section, such as "stop".
        fields: The further fields of the experiment file.
        given: The arguments of the search that belong to the section; None: not given.

    Raises:
        InvalidInput: The section in `fields` is not a mapping, or a value is given in it and as an argument.
    """
    found = fields.get(name) or {}
    if not isinstance(found, Mapping):
        raise InvalidInput(f"search: {name} needs a mapping, found {found!r:.80}")
    own = {key: value for key, value in given.items() if value is not None}
    twice = sorted(own.keys() & found.keys())
    if twice:
        raise InvalidInput(f"search: {twice[0]} is given twice, as an argument and in {name}; give one of them")
    return {**found, **own}
