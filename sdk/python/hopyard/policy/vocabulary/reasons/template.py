"""The sentence of a reason code as a template, which also declares the arguments of the code.

* `{job}` is a text, `{job!r}` a quoted text.
* `{position:d}` is a whole number, `{runs:run|runs}` a whole number with its noun, `{nodes:?is|are}` only the word for it.
* `{target:g}` is a number in this format.
* `{cause:reason}` is another reason, as its sentence.
* `[; {seconds:d} s left]` is left out if an argument in it is missing. `[A|B]` is the first alternative that has all its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, NamedTuple

_TOKEN: Final = re.compile(r"(\{[^}]*\}|\[|\]|\|)")
_FIELD: Final = re.compile(r"\{(\w+)(!r)?(?::([^}]+))?\}")


class _Field(NamedTuple):
    """A placeholder: the argument, its type, and what makes its text."""

    name: str
    type: str
    show: Callable[[Any], str]


_Parts = list[str | _Field]


class Sentence:
    """The sentence of one reason code.

    Args:
        template: The text with placeholders.
        meaning: When the engine gives this reason, for people who read the table of codes.
    """

    def __init__(self, template: str, meaning: str) -> None:
        self.template = template
        self.meaning = meaning

    @cached_property
    def arguments(self) -> Mapping[str, str]:
        """The types of the arguments by name: "str", "int", "float" or "reason"."""
        found: dict[str, str] = {}
        for field in self._fields():
            # A count that also chooses a word has one type everywhere.
            if found.setdefault(field.name, field.type) != field.type:
                raise ValueError(f"{self.template!r}: {field.name} has two types, {found[field.name]} and {field.type}")
        return found

    @cached_property
    def required(self) -> frozenset[str]:
        """The arguments that every reason with this code has."""
        return frozenset(part.name for part in self._parts if isinstance(part, _Field))

    def text(self, arguments: Mapping[str, Any]) -> str:
        """The sentence for some arguments."""
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
