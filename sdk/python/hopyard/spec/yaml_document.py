"""Reads YAML text as plain data with line numbers.

It follows the rules of YAML 1.2, which are less surprising than the rules of version 1.1 in PyYAML: `1e-4` is a number,
`on`, `no` and `12:30` are text, and `010` is ten. Tags, duplicate keys, keys that are not text, and merge keys are
mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import yaml

from hopyard._common.bounded_yaml import MAX_DEPTH, MAX_NODES, BoundedLoader, OversizedYaml
from hopyard.space import JsonValue, Problem, show

Path = tuple[str | int, ...]

_LARGEST_TEXT: Final = 1 << 20
_LONGEST_NUMBER: Final = 400
_NUMBER_BITS: Final = 1023
_YAML: Final = "tag:yaml.org,2002:"

_INT = re.compile(r"[-+]?[0-9][0-9_]*|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_CONSTANTS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


@dataclass
class Document:
    """The plain data in a YAML text, with line numbers and mistakes.

    Attributes:
        data: The content; None if the text could not be read at all.
        lines: Line number (starting with 1) of each key and list item, by its path of keys and indices.
        problems: Violations of the rules for the text (YAML and its limits), each with its line number.
    """

    data: JsonValue = None
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[tuple[int, Problem]] = field(default_factory=list)

    def line(self, path: Path) -> int | None:
        """Return the line number of a key or list item, or of its nearest parent in the text.

        Args:
            path: Keys and indices from the root of the document.

        Returns:
            The line, starting with 1; for an empty path, that of the document. None if the text does not have the first key of
            the path.
        """
        if path and path[:1] not in self.lines:
            return None
        while path not in self.lines and path:
            path = path[:-1]
        return self.lines.get(path, 1)


def read_document(text: str) -> Document:
    """Read a YAML text. Mistakes are returned in `Document.problems`; no exception is raised for them.

    A text with more than 2^20 characters, 100,000 values or 40 levels is a mistake, and `Document.data` is then None. Values and their
    characters are counted each time an alias uses them. Reading may take seconds: servers do it in a thread.
    """
    document = Document()
    if len(text) > _LARGEST_TEXT:
        document.problems.append((1, Problem((), f"needs at most {_LARGEST_TEXT} characters, found {len(text)}")))
        return document
    try:
        node = yaml.compose(text, Loader=_Loader)
        if node is not None:
            document.data = _Reader(document).read(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = ", ".join(filter(None, (error.context, error.problem)))
        column = f" (column {mark.column + 1})" if mark else ""
        document.problems.append((mark.line + 1 if mark else 1, Problem((), f"is not YAML: {words}{column}")))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        document.problems.append((line, Problem((), f"is not YAML: character {error.character!r}: {error.reason}")))
    except OversizedYaml as error:
        document.problems.append((1, Problem((), str(error))))
    except ValueError as error:  # PyYAML itself converts numbers in some places, such as %YAML and escapes.
        document.problems.append((1, Problem((), f"is not YAML: {error!s:.200}")))
    return document


class _Loader(BoundedLoader):
    """A YAML loader that leaves plain scalars as text. `_Reader` determines their types by the rules of YAML 1.2."""

    yaml_implicit_resolvers: Final = {}  # type: ignore[misc]  # the stub does not know that this is a class attribute


class _Reader:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._nodes = 0
        self._characters = 0
        self._open: list[yaml.Node] = []

    def read(self, node: yaml.Node, path: Path) -> JsonValue:
        self._nodes += 1
        self._characters += len(node.value) if isinstance(node, yaml.ScalarNode) else 0
        if self._nodes > MAX_NODES or self._characters > _LARGEST_TEXT:
            raise OversizedYaml(
                f"needs at most {MAX_NODES} values, aliases counted each time, with {_LARGEST_TEXT} characters"
            )
        if len(path) > MAX_DEPTH:
            raise OversizedYaml(f"is nested too deeply: needs at most {MAX_DEPTH} levels, aliases followed")
        self._document.lines.setdefault(path, node.start_mark.line + 1)
        if node in self._open:
            return self._wrong(node, path, "an alias that contains itself is not allowed")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        self._open.append(node)
        try:
            if isinstance(node, yaml.SequenceNode) and node.tag == f"{_YAML}seq":
                return [self.read(item, (*path, index)) for index, item in enumerate(node.value)]
            if isinstance(node, yaml.MappingNode) and node.tag == f"{_YAML}map":
                return {key: self.read(value, (*path, key)) for key, value in self._entries(node, path)}
        finally:
            self._open.pop()
        return self._wrong(node, path, f"the tag {node.tag} is not allowed; write plain values")

    def _entries(self, node: yaml.MappingNode, path: Path) -> Iterator[tuple[str, yaml.Node]]:
        first_lines = dict[str, int]()
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self._scalar(key_node, path) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                shown = key_node.value if isinstance(key_node, yaml.ScalarNode) else "a list or mapping"
                self._wrong(key_node, path, f"a key must be text, found {shown} (quote it to make it text)")
            elif key == "<<":
                self._wrong(key_node, path, "merge keys (<<) are not allowed; write the fields out")
            elif key in first_lines:
                self._wrong(key_node, (*path, key), f"is given twice, first in line {first_lines[key]}")
            else:
                first_lines[key] = line
                self._document.lines[(*path, key)] = line
                yield key, value_node

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> JsonValue:
        text: str = node.value
        if node.tag == f"{_YAML}str" and (node.style is not None or _is_text(text)):
            return text
        if node.tag not in {f"{_YAML}str", *(_YAML + kind for kind in ("null", "bool", "int", "float"))}:
            return self._wrong(node, path, f"the tag {node.tag} is not allowed; write plain values")
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        digits = text.replace("_", "")
        if _INT.fullmatch(text):
            base = 16 if digits.startswith("0x") else 8 if digits.startswith("0o") else 10
            number = int(digits, base) if len(digits) <= _LONGEST_NUMBER else None
            if number is None or number.bit_length() > _NUMBER_BITS:
                return self._wrong(node, path, f"needs a number that a double can hold, found {len(digits)} digits")
            return number
        if _FLOAT.fullmatch(text):
            return float(digits.lower().replace(".inf", "inf").replace(".nan", "nan"))
        return self._wrong(node, path, f"{show(text)} does not fit its tag {node.tag}")

    def _wrong(self, node: yaml.Node, path: Path, message: str) -> JsonValue:
        self._document.problems.append((node.start_mark.line + 1, Problem(path, message)))
        return None


def _is_text(text: str) -> bool:
    return text not in _CONSTANTS and not _INT.fullmatch(text) and not _FLOAT.fullmatch(text)
