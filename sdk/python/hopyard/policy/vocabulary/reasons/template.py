"""Templates of sentences. The template of a reason code also declares the arguments of the code.

* `{job}` is a text, `{job!r}` a quoted text.
* `{position:d}` is an integer, `{runs:run|runs}` an integer followed by the singular or plural noun, `{nodes:?is|are}`
  only the singular or plural word for the integer.
* `{target:g}` is a number in this format.
* `{cause:reason}` is the sentence of another reason.
* `[; {seconds:d} s left]` is omitted if one of its arguments is missing. `[A|B]` is the first alternative whose
  arguments are all present; it is empty if there is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, NamedTuple

_TOKEN: Final = re.compile(r"(\{[^}]*\}|\[|\]|\|)")
_FIELD: Final = re.compile(r"\{(\w+)(!r)?(?::([^}]+))?\}")


class _Field(NamedTuple):
    """A placeholder in a template, such as `{position:d}`.

    Attributes:
        name: The name of the argument.
        type: The type of the argument: "str", "int", "float" or "reason".
        show: Function that converts the value of the argument to the text that replaces the placeholder.
    """

    name: str
    type: str
    show: Callable[[Any], str]


_Parts = list[str | _Field]


class Sentence:
    """The template of the sentence of one reason code.

    Args:
        template: The text with placeholders for arguments, such as `{job}` or `{position:d}`, and optional parts in `[...]` (see
            the module).
        meaning: In which situation the engine uses the code: a text for the table of codes in docs/reasons.md.
    """

    def __init__(self, template: str, meaning: str) -> None:
        self.template = template
        self.meaning = meaning

    @cached_property
    def arguments(self) -> Mapping[str, str]:
        """The types of all arguments by name: "str", "int", "float" or "reason".

        Raises:
            ValueError: The template uses an argument with two types, or has an invalid placeholder.
        """
        found: dict[str, str] = {}
        for field in self._fields():
            # An argument that is used as a number and to choose a word has one type.
            if found.setdefault(field.name, field.type) != field.type:
                raise ValueError(f"{self.template!r}: {field.name} has two types, {found[field.name]} and {field.type}")
        return found

    @cached_property
    def required(self) -> frozenset[str]:
        """The names of the arguments that every reason with this code must have: those outside the optional parts `[...]`."""
        return frozenset(part.name for part in self._parts if isinstance(part, _Field))

    def text(self, arguments: Mapping[str, Any]) -> str:
        """Return the sentence for the given arguments, by name.

        Raises:
            KeyError: A required argument is missing.
        """
        shown = []
        for part in self._parts:
            if isinstance(part, str):
                shown.append(part)
            elif isinstance(part, _Field):
                shown.append(part.show(arguments[part.name]))
            else:
                shown.append(_first(part, arguments))
        return "".join(shown)

    @cached_property
    def _parts(self) -> list[str | _Field | list[_Parts]]:
        found: list[str | _Field | list[_Parts]] = []
        group: list[_Parts] | None = None
        for token in filter(None, _TOKEN.split(self.template)):
            if token == "[":
                group = [[]]
            elif token == "]" and group is not None:
                found.append(group)
                group = None
            elif token == "|" and group is not None:
                group.append([])
            else:
                (found if group is None else group[-1]).append(_field(token) if token[0] == "{" else token)
        return found

    def _fields(self) -> Iterator[_Field]:
        for part in self._parts:
            for one in [part] if not isinstance(part, list) else [item for option in part for item in option]:
                if isinstance(one, _Field):
                    yield one


def _first(options: list[_Parts], arguments: Mapping[str, Any]) -> str:
    for option in options:
        if all(part.name in arguments for part in option if isinstance(part, _Field)):
            return "".join(part if isinstance(part, str) else part.show(arguments[part.name]) for part in option)
    return ""


def _field(token: str) -> _Field:
    match = _FIELD.fullmatch(token)
    if match is None:
        raise ValueError(f"placeholder {token}: allowed are {{name}}, {{name!r}} and {{name:format}}")
    name, quoted, form = match.groups()
    if quoted:
        return _Field(name, "str", repr)
    if form is None:
        return _Field(name, "str", str)
    if form in ("d", "reason"):
        return _Field(name, "int" if form == "d" else "reason", str)
    if "|" in form:
        one, _, many = form.removeprefix("?").partition("|")
        if form.startswith("?"):
            return _Field(name, "int", lambda count: one if count == 1 else many)
        return _Field(name, "int", lambda count: f"{count} {one if count == 1 else many}")
    return _Field(name, "float", lambda value: format(value, form))
