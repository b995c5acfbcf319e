"""Tests that docs/papers.md names only code, tests, files and options that exist, and that each of its rows is complete.

The tests read files as text instead of importing them, so that they are quick. `test_commands` checks the commands of `hopyard`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.quick

_COLUMNS: Final = ("section", "mechanism", "code", "test", "command", "differs or missing")
_PAPERS: Final = ("HyperDrive", "ASHA", "Hippo", "Cerebro")
_NOTES: Final = ("", "differs", "missing")
_ROOTS: Final = (
    "policies",
    "sdk/python",
    "services/scheduler",
    "services/nodeagent",
    "services/appstat",
    "services/hpgen",
)
_NAMED: Final = re.compile(r"`([^`]+)`")
_DEFINITION: Final = re.compile(r"^((?: {4}){0,2})(?:async def |def |class )?([A-Za-z_]\w*) *[(:=\[]", re.MULTILINE)
_OPTION: Final = re.compile(r"--[a-z][a-z-]*")


class Row(NamedTuple):
    """A row of a table of the page; the fields are the cells of its columns."""

    section: str
    mechanism: str
    code: str
    test: str
    command: str
    note: str


def rows(page: str) -> dict[str, list[Row]]:
    """Return the rows of the page by paper, the first word of a heading of the second level."""
    found: dict[str, list[Row]] = {}
    paper = ""
    for line in page.splitlines():
        if line.startswith("## "):
            paper = line.split()[1]
        elif line.startswith("| ") and (cells := [cell.strip() for cell in line[1:-1].split("|")]) != list(_COLUMNS):
            found.setdefault(paper, []).append(Row(*cells))
    return found


@cache
def _text(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


@cache
def _definitions(path: Path) -> frozenset[tuple[int, str]]:
    """Return the functions, classes and assigned names of a file with the number of their spaces of indentation."""
    return frozenset((len(indent), name) for indent, name in _DEFINITION.findall(_text(path)))


@cache
def _root(package: str) -> Path | None:
    return next((ROOT / root for root in _ROOTS if (ROOT / root / package / "__init__.py").is_file()), None)


@cache
def _module(name: str) -> Path | None:
    """Return the file of a module or package by its dotted name; None: there is none."""
    root = _root(name.split(".")[0])
    path = root and root.joinpath(*name.split("."))
    return path and next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()), None)


def has_code(name: str) -> bool:
    """Return whether a file of the repository, or a module with the class, function, method or constant in it, exists."""
    if "/" in name:
        return (ROOT / name).is_file()
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        if file := _module(".".join(parts[:length])):
            return all((4 * depth, each) in _definitions(file) for depth, each in enumerate(parts[length:]))
    return False


def has_test(name: str) -> bool:
    """Return whether a test exists: a file below `tests`, and the names of its class, if it has one, and function."""
    path, *names = name.split("::")
    return bool(names) and all(
        (4 * depth, each) in _definitions(ROOT / "tests" / path) for depth, each in enumerate(names)
    )


def _of_command(command: str) -> Iterator[str]:
    program, *words = command.split()
    if program == "pytest" and not words:
        return
    if program not in ("hopyard", "python") or not words:
        yield f"`{command}` is neither pytest nor a command of hopyard or python"
    yield from (f"there is no file {word}" for word in words if "/" in word and not (ROOT / word).is_file())
    if program == "python" and words:
        known = _text(ROOT / words[0])
        yield from (f"{words[0]} has no option {each}" for each in _OPTION.findall(command) if f'"{each}"' not in known)


def problems(row: Row) -> Iterator[str]:
    """Yield what is wrong with a row."""
    place = f"{row.section}: {row.mechanism}"
    kind = row.note.split(":")[0]
    if kind not in _NOTES:
        yield f"{place}: the last cell begins with {kind!r}, not with differs or missing"
    yield from (f"{place}: no {name}" for name in ("section", "mechanism", "command") if not getattr(row, name))
    yield from (f"{place}: no {name}" for name in ("code", "test") if not row.note and not getattr(row, name))
    for name, exists in (("code", has_code), ("test", has_test)):
        cell = getattr(row, name)
        yield from (f"{place}: there is no {name} {each}" for each in _NAMED.findall(cell) if not exists(each))
        if _NAMED.sub("", cell).strip(" ,"):
            yield f"{place}: {name} names something outside of backticks"
    for command in _NAMED.findall(row.command):
        yield from (f"{place}: {each}" for each in _of_command(command))


def test_each_row_names_what_exists() -> None:
    found = rows((ROOT / "docs/papers.md").read_text())
    assert [each for paper in found.values() for row in paper for each in problems(row)] == []


def test_each_paper_has_its_rows() -> None:
    found = rows((ROOT / "docs/papers.md").read_text())
    assert tuple(found) == _PAPERS
    assert sum(map(len, found.values())) >= 120
    assert min(map(len, found.values())) >= 25


GOOD: Final = Row(
    "3.2",
    "slots",
    "`hopyard_policies.pop.slots.divide`",
    "`unit/policies/test_pop_arithmetic.py::TestSlots::test_all_low`",
    "`python benchmarks/policies.py --slots 2`",
    "",
)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, []),
        ({"code": "`hopyard_policies.pop.policy.PopPolicy.is_poor`, `benchmarks/policies.py`"}, []),
        ({"test": "", "note": "missing: a test"}, []),
        ({"test": ""}, ["3.2: slots: no test"]),
        ({"test": "", "note": "also"}, ["3.2: slots: the last cell begins with 'also', not with differs or missing"]),
        (
            {"code": "`hopyard_policies.pop.slots.share`"},
            ["3.2: slots: there is no code hopyard_policies.pop.slots.share"],
        ),
        ({"code": "`nowhere.divide`"}, ["3.2: slots: there is no code nowhere.divide"]),
        ({"code": "`benchmarks/none.py`"}, ["3.2: slots: there is no code benchmarks/none.py"]),
        ({"code": "the scheduler"}, ["3.2: slots: code names something outside of backticks"]),
        ({"test": "`unit/none.py::test_a`"}, ["3.2: slots: there is no test unit/none.py::test_a"]),
        (
            {"test": "`unit/policies/test_pop_arithmetic.py::test_all_low`"},
            ["3.2: slots: there is no test unit/policies/test_pop_arithmetic.py::test_all_low"],
        ),
        ({"command": "`python benchmarks/none.py`"}, ["3.2: slots: there is no file benchmarks/none.py"]),
        (
            {"command": "`python benchmarks/policies.py --slot 2`"},
            ["3.2: slots: benchmarks/policies.py has no option --slot"],
        ),
        ({"command": "`make`"}, ["3.2: slots: `make` is neither pytest nor a command of hopyard or python"]),
        ({"command": ""}, ["3.2: slots: no command"]),
    ],
)
def test_what_is_wrong_with_a_row_is_said(changed: dict[str, str], said: list[str]) -> None:
    assert list(problems(GOOD._replace(**changed))) == said
