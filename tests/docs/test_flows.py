"""Tests that each function and type named in docs/flows.md exists in the named file, and that the stated counts are right."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import ROOT

_ROW: Final = re.compile(r"\| (\d+) \| `([^`]+)` \| `([^`]+)` \|")
_TYPE: Final = re.compile(r"\| `(\w+)` \| `([^`]+)` \|")
_HEADING: Final = re.compile(r"#+ .*?(?:\(`([^`]+)`\))?$")
_COUNT: Final = re.compile(r"(\d+) functions in (\d+) files")


def _flows() -> list[tuple[tuple[int, int], list[tuple[int, str, str]]]]:
    """Return for each flow the counts that its text states, and its rows: number, path from the root, function."""
    flows: list[tuple[tuple[int, int], list[tuple[int, str, str]]]] = []
    folder = ""
    for line in (ROOT / "docs/flows.md").read_text().splitlines():
        if heading := _HEADING.fullmatch(line):
            folder = f"{heading[1]}/" if heading[1] and "(`" in line else ""
        elif count := _COUNT.match(line):
            flows.append(((int(count[1]), int(count[2])), []))
        elif row := _ROW.match(line):
            flows[-1][1].append((int(row[1]), folder + row[2], row[3]))
    return flows


def _functions(path: str) -> set[str]:
    found = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            inner = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}.{each.name}" for each in inner}
    return found


ROWS: Final = [(path, function) for _, rows in _flows() for _, path, function in rows]


@pytest.mark.parametrize(("path", "function"), ROWS)
def test_a_named_function_exists(path: str, function: str) -> None:
    assert function in _functions(path)


def test_the_rows_are_counted() -> None:
    flows = _flows()
    assert len(flows) == 2
    for (functions, files), rows in flows:
        assert [number for number, _, _ in rows] == list(range(1, len(rows) + 1))
        assert (len(rows), len({path for _, path, _ in rows})) == (functions, files)


def _types() -> list[list[tuple[str, str]]]:
    """Return the tables of types: for each, the rows with path and type."""
    text = (ROOT / "docs/flows.md").read_text()
    return [
        [(path, name) for name, path in _TYPE.findall(table)] for table in text.split("\n\n") if _TYPE.search(table)
    ]


@pytest.mark.parametrize(("path", "name"), [row for table in _types() for row in table])
def test_a_named_type_exists(path: str, name: str) -> None:
    assert re.search(rf"^(class|message) {name}\b", (ROOT / path).read_text(), re.MULTILINE)


# Fields by which a shape of a job is recognized. A run has the first two, and the field `job` instead of `id`.
_JOB_FIELDS: Final = {"attempt", "position", "id"}


def test_the_table_of_shapes_has_every_type_with_the_fields_of_a_job() -> None:
    found = [
        (path.relative_to(ROOT).as_posix(), name)
        for root, pattern in (("sdk/python", "*.py"), ("services", "*.py"), ("policies", "*.py"), ("protos", "*.proto"))
        for path in (ROOT / root).rglob(pattern)
        if not path.name.endswith(("_pb2.py", "_pb2_grpc.py"))
        for name, fields in _declared(path)
        if fields >= _JOB_FIELDS
    ]
    shapes = _types()[0]
    assert sorted(found) == sorted(shapes)
    assert len(shapes) == 6
    assert "A job has six shapes" in (ROOT / "docs/flows.md").read_text()


def _declared(path: Path) -> Iterator[tuple[str, set[str]]]:
    """Yield the classes of a module, or the messages of a proto file: name and fields."""
    text = path.read_text()
    if path.suffix == ".proto":
        for name, body in re.findall(r"^message (\w+) \{(.*?)^\}", text, re.MULTILINE | re.DOTALL):
            yield name, set(re.findall(r"(\w+) = \d+", body))
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            fields = (each.target for each in node.body if isinstance(each, ast.AnnAssign))
            yield node.name, {field.id for field in fields if isinstance(field, ast.Name)}
