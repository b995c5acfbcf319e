"""Converts pydantic's errors to Hopyard's messages, which say what is allowed and what was found."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from hopyard.space import Problem, did_you_mean, show

Path = tuple[str | int, ...]

_ALLOWED: Final[Mapping[str, Callable[[dict[str, Any]], str]]] = {
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing"), lambda _: "an integer"),
    **dict.fromkeys(("float_type", "finite_number"), lambda _: "a finite number"),
    "string_type": lambda _: "text",
    "bool_type": lambda _: "true or false",
    **dict.fromkeys(("tuple_type", "list_type"), lambda _: "a list such as [python, train.py]"),
    **dict.fromkeys(("dict_type", "mapping_type"), lambda _: "a mapping"),
    "literal_error": lambda context: f"one of {context['expected'].replace(chr(39), '').replace(' or ', ', ')}",
    "greater_than": lambda context: f"a number > {context['gt']:g}",
    "greater_than_equal": lambda context: f"a number >= {context['ge']:g}",
    "less_than": lambda context: f"a number < {context['lt']}",
    "less_than_equal": lambda context: f"a number <= {context['le']}",
    "string_too_short": lambda context: f"at least {context['min_length']} character",
}


def problems_of(error: ValidationError, root: type[BaseModel]) -> Iterator[Problem]:
    """Yield every mistake in a validation error of pydantic, with its path from the root of the document.

    Args:
        error: The validation error.
        root: The model that was validated.
    """
    for details in error.errors(include_url=False):
        path: Path = tuple(part for part in details["loc"] if not _is_internal(part))
        if details["type"] == "problems":
            for problem in details["ctx"]["problems"]:
                yield Problem((*path, *problem.path), problem.message)
        else:
            yield Problem(path, _message(details, path, root))


def _message(details: ErrorDetails, path: Path, root: type[BaseModel]) -> str:
    kind, context = details["type"], details.get("ctx", {})
    if kind == "missing":
        model = _model_at(root, path[:-1])
        description = model.model_fields[str(path[-1])].description if model else None
        return f"is required: {description}" if description else "is required"
    if kind == "extra_forbidden":
        model = _model_at(root, path[:-1])
        fields = list(model.model_fields) if model else []
        return f"unknown field{did_you_mean(str(path[-1]), fields)}; allowed: {', '.join(fields)}"
    found = f"found {show(details['input'])}"
    if kind == "value_error":
        return str(context["error"])
    if kind in ("model_type", "model_attributes_type"):
        model = _model_at(root, path)
        return (
            f"needs a mapping with {', '.join(model.model_fields)}, {found}" if model else f"needs a mapping, {found}"
        )
    if kind == "string_type" and isinstance(details["input"], int | float):
        return f"needs text, {found} (quote it to make it text)"
    if kind in _ALLOWED:
        return f"needs {_ALLOWED[kind](context)}, {found}"
    return f"{details['msg'][:1].lower()}{details['msg'][1:]}, {found}"


def _model_at(root: type[BaseModel], path: Path) -> type[BaseModel] | None:
    model: type[BaseModel] | None = root
    for part in path:
        info = model.model_fields.get(str(part)) if model else None
        model = _model_in(info.annotation) if info else None
    return model


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        return next(filter(None, map(_model_in, typing.get_args(annotation))), None)
    return None


def _is_internal(part: str | int) -> bool:
    # Pydantic adds names of validators to a location, such as `function-after[...]`, and marks keys. Users do not write
    # these.
    return isinstance(part, str) and (part.startswith("function-") or part == "[key]")
