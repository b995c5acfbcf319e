"""Finds code of a script that follows its training loop, without running the script."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

LOOPS: Final = (ast.For, ast.AsyncFor, ast.While)
_SILENT: Final = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
    *(ast.Import, ast.ImportFrom, ast.Pass, ast.Return, ast.Global, ast.Nonlocal),
)
"""Statements that do nothing which a user would miss."""


def line_after_loop(tree: ast.Module, trains: Callable[[ast.AST], bool]) -> int | None:
    """Return the line of the first statement that runs after the training loop; None: there is none, or no loop was found.

    The training loop is the outermost loop that contains a node for which `trains` is true, or a call of a function of the script that
    contains one. What follows the call of a function with the loop is code after the loop, too. Imports, definitions, `return`, prints
    of a fixed text and `finally` blocks do not count. Methods of classes are not searched.

    Args:
        tree: The syntax tree of the script.
        trains: Whether a node of the tree belongs to the training loop, such as a call of `hopyard.report`.
    """
    return _Search(tree, trains).line


class _Search:
    def __init__(self, tree: ast.Module, trains: Callable[[ast.AST], bool]) -> None:
        self._trains = trains
        self._functions: dict[str, Function] = {
            node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        self._training = self._training_functions()
        self._entered: set[str] = set()
        self.line: int | None = None
        self._search(tree.body)

    def _training_functions(self) -> set[str]:
        """Return the names of the functions that contain training, or use such a function."""
        found: set[str] = set()
        while True:
            more = {
                name
                for name, function in self._functions.items()
                if name not in found
                and any(self._trains(node) or _name(node) in found for one in function.body for node in ast.walk(one))
            }
            if not more:
                return found
            found |= more

    def _search(self, block: Sequence[ast.stmt]) -> bool:
        """Search a block that runs once, and the functions that it uses. Return whether the block contains the training loop."""
        after: int | None = None
        for statement in reversed(block):
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            if self._has_loop(statement):
                self.line = self.line or after
                return True
            if not _is_silent(statement):
                after = statement.lineno
        return False

    def _has_loop(self, statement: ast.stmt) -> bool:
        if not any(self._trains(node) or _name(node) in self._training for node in ast.walk(statement)):
            return False
        if isinstance(statement, LOOPS):
            return True
        inner = list(_blocks(statement))
        if inner:
            return any(self._search(block) for block in inner)
        used = [name for node in ast.walk(statement) if (name := _name(node)) in self._training]
        return any(self._enter(name) for name in used)

    def _enter(self, name: str) -> bool:
        if name in self._entered:
            return False
        self._entered.add(name)
        return self._search(self._functions[name].body)


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of a compound statement that is no loop; nothing for a simple statement."""
    match statement:
        case ast.If(body=body, orelse=other):
            yield from (body, other)
        case ast.With(body=body) | ast.AsyncWith(body=body):
            yield body
        case ast.Try(body=body, orelse=other) | ast.TryStar(body=body, orelse=other):
            yield [*body, *other]
        case ast.Match(cases=cases):
            yield from (case.body for case in cases)
        case _:
            return


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _is_silent(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=texts)):
            return all(isinstance(text, ast.Constant) for text in texts)
        case _:
            return isinstance(statement, _SILENT)
