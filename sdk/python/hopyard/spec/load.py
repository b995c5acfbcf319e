"""Experiment files in, specifications out, and back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from pydantic import ValidationError

from hopyard.errors import InvalidInput
from hopyard.space import Problem, field_name, show
from hopyard.spec.error_text import Path, problems_of
from hopyard.spec.errors import SpecError, SpecProblem
from hopyard.spec.models import ExperimentSpec, program_problems
from hopyard.spec.overflow_check import growing
from hopyard.spec.yaml_document import read_document

_SEARCH: Final = {
    "name": "search",
    "command": ["true"],
    "metric": {"name": "metric", "mode": "max"},
    "generator": "grid",
}


def load_search(text: str, source: str = "experiment") -> ExperimentSpec:
    """Read an experiment file, or one that says only what is searched: without a program, its metric may be missing, too.

    What such a file leaves out is a name, a program and a metric that mean nothing, and the generator `grid`.

    Raises:
        SpecError: as `load_spec` does.
    """
    return load_spec(text, source, missing=_SEARCH)


def load_spec(text: str, source: str = "experiment", *, missing: Mapping[str, object] | None = None) -> ExperimentSpec:
    """Read an experiment file.

    Args:
        text: YAML 1.2 (so JSON as well), at most 1 MiB.
        source: how messages call the file.
        missing: stands for fields that are missing in a file without any program.

    Raises:
        SpecError: all mistakes, each with file, line, field, what was found and what is allowed.
    """
    document = read_document(text)
    problems: list[tuple[int | None, Problem]] = list(document.problems)
    spec: ExperimentSpec | None = None
    if document.data is not None or not problems:
        data: object = document.data
        if missing is not None and isinstance(data, dict) and not data.keys() & {"trainer", "command", "log"}:
            data = {**missing, **data}
        spec, mistakes = _given(data)
        # What could not be read is told once: its place holds nothing, which would be a second mistake.
        unread = {problem.path for _, problem in problems if problem.path}
        problems += [(document.line(found.path), found) for found in mistakes if found.path not in unread]
    if spec is None or problems:
        raise SpecError([_located(source, line, problem) for line, problem in problems])
    return spec


def read_fields(text: str, source: str = "experiment") -> dict[str, Any]:
    """The fields of an experiment file as they are written, for a specification that is made from it: `parse_spec` checks that.

    Raises:
        SpecError: it is no YAML, or no mapping.
    """
    document = read_document(text)
    problems = [*document.problems]
    if not problems and not isinstance(document.data, dict):
        problems.append((1, Problem((), f"needs a mapping of fields, found {show(document.data)}")))
    if problems:
        raise SpecError([_located(source, line, problem) for line, problem in problems])
    return cast("dict[str, Any]", document.data)


def parse_spec(data: Mapping[str, object], source: str = "experiment") -> ExperimentSpec:
    """Make a specification of the plain data an experiment file would hold.

    Raises:
        SpecError: all mistakes, each with field, what was found and what is allowed.
    """
    return _checked(*_given(data), source)


def canonical_json(spec: ExperimentSpec, *, defaults: bool = True) -> str:
    """One line of JSON with every field, defaults included; equal specifications give equal text.

    Without `defaults` it has what was said and nothing else: what its policy chooses where nothing was said is still to come.
    Keys are sorted, except the names in `space`: their order is the grid's. Numbers keep their type (1 stays an
    integer, 1.0 a float), since training code may tell them apart.
    """
    data = spec.model_dump(mode="json", exclude_unset=not defaults)
    space = data.pop("space")
    fields = {**{key: _sorted(value) for key, value in data.items()}, "space": space}
    return json.dumps(dict(sorted(fields.items())), separators=(",", ":"), allow_nan=False)


def spec_from_json(text: str) -> ExperimentSpec:
    """The specification that `canonical_json` wrote.

    Raises:
        SpecError: it is not one.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise SpecError([SpecProblem("experiment", None, "", f"is not JSON: {error}")]) from None
    return _checked(*_validate(data), "experiment")


def placed(error: InvalidInput, text: str, source: str) -> InvalidInput:
    """An error about a field of an experiment file, `field: ...` or `field what it names: ...`, with its place in the file.

    One that names no field, or has its place already, is answered as it is.
    """
    found = re.match(r"([a-z_]+(?:\.\w+)*)(: | \S+)", str(error))
    path = tuple(found[1].split(".")) if found is not None else ()
    if isinstance(error, SpecError) or found is None or path[0] not in ExperimentSpec.model_fields:
        return error
    if found[2] == ": ":
        field, message = found[1], str(error)[found.end() :]
    elif ":" in str(error):
        field, message = "", str(error)
    else:
        return error
    return SpecError([SpecProblem(source, read_document(text).line(path), field, message)])


def _checked(spec: ExperimentSpec | None, mistakes: list[Problem], source: str) -> ExperimentSpec:
    if spec is None:
        raise SpecError([_located(source, None, mistake) for mistake in mistakes])
    return spec


def _given(data: object) -> tuple[ExperimentSpec | None, list[Problem]]:
    """Validate what a user gives; what was accepted once and is journalled stays as it is."""
    spec, mistakes = _validate(data)
    if spec is not None and spec.stop.max_iterations is not None:
        mistakes += growing(spec.space, spec.stop.max_iterations)
    return (None if mistakes else spec), mistakes


def _validate(data: object) -> tuple[ExperimentSpec | None, list[Problem]]:
    if not isinstance(data, Mapping):
        fields = ", ".join(ExperimentSpec.model_fields)
        found = "nothing" if data is None else show(data)
        return None, [Problem((), f"needs a mapping with {fields}; found {found}")]
    if mistakes := list(_unwritable((), data)):
        return None, mistakes
    try:
        return ExperimentSpec.model_validate(data), []
    except ValidationError as error:
        mistakes = list(problems_of(error, ExperimentSpec))
        # Rules between fields are only looked at when each field is right; this one can be told all the same.
        return None, mistakes + [problem for problem in program_problems(data) if problem not in mistakes]


def _unwritable(path: Path, value: object) -> Iterator[Problem]:
    """Text that nothing can send or store: YAML and JSON know escapes for half a character."""
    match value:
        case str() if not _is_unicode(value):
            yield Problem(path, f"found text that is no Unicode, {value!a}: a surrogate stands alone in it")
        case Mapping():
            for key, item in value.items():
                yield from _unwritable(path, key)
                if isinstance(key, str) and _is_unicode(key):  # Its place could not be told otherwise.
                    yield from _unwritable((*path, key), item)
        case list() | tuple():
            for index, item in enumerate(value):
                yield from _unwritable((*path, index), item)


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _located(source: str, line: int | None, problem: Problem) -> SpecProblem:
    return SpecProblem(source, line, field_name(problem.path), problem.message)


def _sorted(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_sorted(item) for item in value]
    return value
