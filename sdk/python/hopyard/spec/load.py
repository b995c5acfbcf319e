"""Converts experiment files to specifications (`ExperimentSpec`), and specifications to canonical JSON."""

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
from hopyard.spec.models import PROGRAM_FIELDS, ExperimentSpec, program_problems
from hopyard.spec.overflow_check import overflow_problems
from hopyard.spec.yaml_document import read_document

_SEARCH: Final = {
    "name": "search",
    "command": ["true"],
    "metric": {"name": "metric", "mode": "max"},
    "generator": "grid",
}


def load_search(text: str, source: str = "experiment") -> ExperimentSpec:
    """Read an experiment file that may describe only the search, without a program.

    Missing fields get placeholders if the file has no program: a name, a program, a metric, and the generator `grid`.

    Args:
        text: YAML 1.2 (which includes JSON), at most 2^20 characters.
        source: Name of the file in messages.

    Raises:
        SpecError: The file is not valid; see `load_spec`.
    """
    return load_spec(text, source, missing=_SEARCH)


def load_spec(text: str, source: str = "experiment", *, missing: Mapping[str, object] | None = None) -> ExperimentSpec:
    """Read an experiment file.

    Args:
        text: YAML 1.2 (which includes JSON), at most 2^20 characters.
        source: Name of the file in messages.
        missing: Values for missing fields, used only if the file has no program (`trainer`, `command` or `log`).

    Raises:
        SpecError: The file is not valid. The error lists all mistakes, each with file, line, field, what was found, and
            what is allowed.
    """
    document = read_document(text)
    problems: list[tuple[int | None, Problem]] = list(document.problems)
    spec: ExperimentSpec | None = None
    if document.data is not None or not problems:
        data: object = document.data
        if missing is not None and isinstance(data, dict) and data.keys().isdisjoint(PROGRAM_FIELDS):
            data = {**missing, **data}
        spec, mistakes = _given(data)
        # Report unreadable parts only once. They have no value, which would be reported as a second mistake.
        unread = {problem.path for _, problem in problems if problem.path}
        problems += [(document.line(found.path), found) for found in mistakes if found.path not in unread]
    if spec is None or problems:
        raise SpecError([_located(source, line, problem) for line, problem in problems])
    return spec


def read_fields(text: str, source: str = "experiment") -> dict[str, Any]:
    """Return the fields of an experiment file as plain data, without checking them. `parse_spec` checks such data.

    Args:
        text: YAML 1.2 (which includes JSON), at most 2^20 characters.
        source: Name of the file in messages.

    Raises:
        SpecError: The text is not YAML, or not a mapping.
    """
    document = read_document(text)
    problems = [*document.problems]
    if not problems and not isinstance(document.data, dict):
        problems.append((1, Problem((), f"needs a mapping of fields, found {show(document.data)}")))
    if problems:
        raise SpecError([_located(source, line, problem) for line, problem in problems])
    return cast("dict[str, Any]", document.data)


def parse_spec(data: Mapping[str, object], source: str = "experiment") -> ExperimentSpec:
    """Create a specification from the plain data of an experiment file.

    Args:
        data: The fields of the file.
        source: Name of the file in messages.

    Raises:
        SpecError: The data is not valid. The error lists all mistakes, each with field, what was found, and what is
            allowed.
    """
    return _checked(*_given(data), source)


def canonical_json(spec: ExperimentSpec, *, defaults: bool = True) -> str:
    """Return a specification as one line of JSON. Equal specifications produce equal text.

    Keys are sorted, except the names in `space`, whose order defines the order of the grid. Numbers keep their type (1
    remains an integer, 1.0 a float), because training code may distinguish them.

    Args:
        spec: The specification.
        defaults: Whether the text contains every field. If False, it contains, also inside sections, only the fields to
            which the experiment file or `with_generator` gives a value, so that the policy can still choose values for the others.
    """
    data = spec.model_dump(mode="json", exclude_unset=not defaults)
    space = data.pop("space")
    fields = {**{key: _sorted(value) for key, value in data.items()}, "space": space}
    return json.dumps(dict(sorted(fields.items())), separators=(",", ":"), allow_nan=False)


def spec_from_json(text: str) -> ExperimentSpec:
    """Create a specification from text that `canonical_json` returned.

    Raises:
        SpecError: The text is not a valid specification.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError([SpecProblem("experiment", None, "", f"is not JSON: {error!s:.200}")]) from None
    return _checked(*_validate(data), "experiment")


def placed(error: InvalidInput, text: str, source: str) -> InvalidInput:
    """Return an error about a field of an experiment file as a `SpecError` with the location of the field.

    The message of the error must begin with the dotted name of a field, followed by a colon (`policy.name: ...`) or by other words
    and a colon (`policy median: ...`). An error with another message, and each `SpecError`, is returned unchanged. If the text does
    not contain the field, the line is that of its nearest parent, or None.

    Args:
        error: The error.
        text: The content of the file.
        source: Name of the file in messages.
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
    """Validate data that a user has written, and check that no sequence exceeds the range of a double (not done for journal data).

    Returns:
        The specification, or None if there are mistakes, and the mistakes.
    """
    spec, mistakes = _validate(data)
    if spec is not None and spec.stop.max_iterations is not None:
        mistakes += overflow_problems(spec.space, spec.stop.max_iterations)
    return (None if mistakes else spec), mistakes


def _validate(data: object) -> tuple[ExperimentSpec | None, list[Problem]]:
    if not isinstance(data, Mapping):
        fields = ", ".join(ExperimentSpec.model_fields)
        found = "nothing" if data is None else show(data)
        return None, [Problem((), f"needs a mapping with {fields}; found {found}")]
    try:
        if mistakes := list(_unwritable((), data)):
            return None, mistakes
        return ExperimentSpec.model_validate(data), []
    except OverflowError as error:  # Pydantic reports ValueError only.
        return None, [Problem((), f"has a number that a double cannot hold: {error}")]
    except RecursionError:
        return None, [Problem((), "is nested too deeply")]
    except ValidationError as error:
        mistakes = list(problems_of(error, ExperimentSpec))
        # Pydantic checks rules between fields only if every field is valid. This rule can be checked in any case.
        return None, mistakes + [problem for problem in program_problems(data) if problem not in mistakes]


def _unwritable(path: Path, value: object) -> Iterator[Problem]:
    """Yield a problem for each text in `value` that contains an unpaired surrogate (U+D800 to U+DFFF).

    YAML and JSON can express such text by escapes, but it has no UTF-8 encoding, so it can be neither sent nor stored.

    Args:
        path: The location of `value` in the specification.
        value: A part of the data of a specification.
    """
    match value:
        case str() if not _is_unicode(value):
            yield Problem(path, f"found text that is no Unicode, {value!a}: it contains an unpaired surrogate")
        case Mapping():
            for key, item in value.items():
                yield from _unwritable(path, key)
                if isinstance(key, str) and _is_unicode(key):  # Otherwise the location could not be reported.
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
