"""Scripts and notebooks as the main module of this process."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest


def script(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> Callable[[str], Any]:
    """Run a script as `__main__`, and return a function that returns the value of one of its names."""
    file = folder / "script.py"
    file.write_text(dedent(text))
    module = ModuleType("__main__")
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "__main__", module)
    exec(compile(file.read_text(), str(file), "exec", dont_inherit=True), vars(module))  # noqa: S102 - it stands for the interpreter
    return lambda name: vars(module)[name]


def notebook(monkeypatch: pytest.MonkeyPatch, *cells: str) -> Callable[[str], Any]:
    """Run the cells of a notebook as IPython does, and return a function that returns the value of a name."""
    module = ModuleType("__main__")
    vars(module)["In"] = [""]
    monkeypatch.setitem(sys.modules, "__main__", module)
    for number, cell in enumerate(cells):
        text, name = dedent(cell), f"<cell {number} of {id(module)}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        vars(module)["In"].append(text)
        exec(compile(text, name, "exec", dont_inherit=True), vars(module))  # noqa: S102 - it stands for the interpreter
    return lambda name: vars(module)[name]


def run(text: str, function: str, argument: Any) -> Any:
    """Execute the text of a module elsewhere, call its function, and return the result."""
    space: dict[str, Any] = {"__name__": "elsewhere"}
    exec(compile(text, "elsewhere.py", "exec", dont_inherit=True), space)  # noqa: S102 - it stands for the interpreter
    return space[function](argument)
