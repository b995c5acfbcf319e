"""Finds the number of iterations of a loop in a script, without running it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from hopyard.cli.init.option_detection import Option


class LoopLength(NamedTuple):
    """The length of a loop.

    Attributes:
        iterations: Number of iterations.
        option: Name of the option whose default it is; None: it is not the default of an option.
    """

    iterations: int
    option: str | None


class Numbers:
    """The whole numbers that a script has by name: variables that are assigned once, and defaults of its options.

    Args:
        tree: The syntax tree of the script.
        options: The options of the script.
    """

    def __init__(self, tree: ast.Module, options: Sequence[Option]) -> None:
        stored = Counter(
            node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
        )
        self._constants: dict[str, int] = {}
        for node in ast.walk(tree):
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int(value)))
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=int(value)))
                ) if stored[name] == 1:
                    self._constants[name] = value
        self._options = {
            one.name: one.default
            for one in options
            if isinstance(one.default, int) and not isinstance(one.default, bool)
        }

    def length(self, loop: ast.stmt) -> LoopLength | None:
        """Return the length of a loop over `range`, also inside a call such as `tqdm(range(10))`; None: it is not known.

        The beginning of a range that is not a literal counts as 0, because a script that resumes begins at a variable.
        """
        if not isinstance(loop, ast.For):
            return None
        called = loop.iter
        while isinstance(called, ast.Call) and not _is_range(called) and called.args:
            called = called.args[0]
        if not isinstance(called, ast.Call) or not _is_range(called):
            return None
        begin, end, step = 0, called.args[0] if len(called.args) == 1 else None, 1
        match called.args:
            case [first, last]:
                begin, end = _literal(first), last
            case [first, last, ast.Constant(value=int(given))] if given > 0:
                begin, end, step = _literal(first), last, given
        number = self._number(end)
        return None if number is None else LoopLength(len(range(begin, number.iterations, step)), number.option)

    def _number(self, node: ast.expr | None) -> LoopLength | None:
        match node:
            case ast.Constant(value=int(value)):
                return LoopLength(value, None)
            case ast.Name(id=name) if name in self._constants:
                return LoopLength(self._constants[name], None)
            case ast.Name(id=name) | ast.Attribute(value=ast.Name(), attr=name) if name in self._options:
                return LoopLength(self._options[name], name)
            case _:
                return None


def _is_range(call: ast.Call) -> bool:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in ("range", "trange")
        case _:
            return False


def _literal(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case _:
            return 0
