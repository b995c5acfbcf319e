"""Tests that each function named in docs/flows.md exists in the named file, and that the stated counts are right."""

from __future__ import annotations

import ast
import re
from typing import Final

import pytest

from tests.docs.pages import ROOT

_ROW: Final = re.compile(r"\| (\d+) \| `([^`]+)` \| `([^`]+)` \|")
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
