"""Analyzes a training script by its syntax tree, without running or importing it."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hopyard.cli.init import loop_lengths
from hopyard.cli.init.code_after_loop import line_after_loop
from hopyard.cli.init.metric_patterns import patterns_of
from hopyard.cli.init.option_detection import Option, options_of
from hopyard.errors import InvalidInput

_HYPERPARAMETERS: Final = "hopyard.hyperparameters"
_REPORT: Final = "hopyard.report"
_NOT_METRICS: Final = frozenset({"position", "checkpoint"})
_GIVEN_AT: Final = {"build": 1, "setup": 1, "build_model": 1, "build_optimizer": 2, "build_scheduler": 2, "change": 1}
"""Index of the parameter with the hyperparameters in each method of a trainer."""
_MEASURING: Final = ("evaluate", "metrics", "train")
_TORCH_METRICS: Final = ("loss", "train_loss")


@dataclass(slots=True)
class Script:
    """What the analysis of a script found.

    Attributes:
        trainer: Name of its trainer class; None: it has none. Of several, the last one that is not a base class of another.
        options: Its command-line options in order.
        values: Hyperparameters that it reads by name, each with its default or None.
        reports: Whether it calls `hopyard.report`.
        checkpoints: Whether a call of `hopyard.report` may pass a checkpoint.
        metrics: Names of the metrics that it reports or that its trainer returns.
        patterns: Printed metrics by name, each with a regular expression that finds its value in the output.
        epochs: Number of iterations of the loops that contain the call of `hopyard.report`, else of the last loop over epochs; None: it
            is not a literal, a constant or the default of an option.
        length_option: Name of the option that limits these iterations; None: no option does.
        after_loop: Line of the first statement after these loops; None: there is none.
    """

    trainer: str | None = None
    options: list[Option] = field(default_factory=list)
    values: dict[str, object] = field(default_factory=dict)
    reports: bool = False
    checkpoints: bool = False
    metrics: list[str] = field(default_factory=list)
    patterns: dict[str, str] = field(default_factory=dict)
    epochs: int | None = None
    length_option: str | None = None
    after_loop: int | None = None


def read_script(file: Path) -> Script:
    """Parse and analyze a Python script.

    Raises:
        InvalidInput: The file is missing, or is not valid Python. The message names the line.
    """
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        raise InvalidInput(f"{file}: there is no such file") from None
    except IsADirectoryError:
        raise InvalidInput(f"{file}: this is a folder; name the script in it") from None
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise InvalidInput(f"{file}:{line}: is not Python: {getattr(error, 'msg', error)}") from error
    return _Reader(tree).script


class _Reader:
    def __init__(self, tree: ast.Module) -> None:
        self._names = _imported(tree)
        self.script = Script(options=options_of(tree), patterns=patterns_of(tree))
        holders = {"hyperparameters"}
        trainers = self._trainers(tree)
        if trainers:
            self.script.trainer = trainers[-1].name
            holders |= _arguments(trainers)
            self.script.metrics = self._returned(trainers)
        for node in ast.walk(tree):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=called)) if (
                    self._full(called) == _HYPERPARAMETERS
                ):
                    holders.add(name)
                case ast.Call(func=called) if self._full(called) == _REPORT:
                    self.script.reports = True
                    self.script.checkpoints |= any(key.arg in ("checkpoint", None) for key in node.keywords)
                    names = [key.arg for key in node.keywords if key.arg is not None and key.arg not in _NOT_METRICS]
                    self.script.metrics += [name for name in names if name not in self.script.metrics]
        for node in ast.walk(tree):
            self._read_value(node, holders)
        self._read_length(tree)

    def _full(self, node: ast.expr) -> str:
        """Return the dotted name of an expression, with imported names resolved; empty if the expression is not a name."""
        match node:
            case ast.Name(id=name):
                return self._names.get(name, name)
            case ast.Attribute(value=value, attr=name):
                before = self._full(value)
                return f"{before}.{name}" if before else ""
            case _:
                return ""

    def _trainers(self, tree: ast.Module) -> list[ast.ClassDef]:
        """Return the classes of the script that are derived from a Hopyard trainer and are not base classes of others."""
        found: dict[str, ast.ClassDef] = {}
        bases: set[str] = set()
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                full = [self._full(base) for base in node.bases]
                known = [name for name in full if name in found]
                if known or any(name.startswith("hopyard.") and name.endswith("Trainer") for name in full):
                    found[node.name] = node
                    bases.update(known)
        return [node for name, node in found.items() if name not in bases]

    def _returned(self, trainers: list[ast.ClassDef]) -> list[str]:
        """Return the names of the metrics that the methods of the last one in the list `trainers` return; empty: none are known."""
        names: list[str] = []
        for trainer in trainers[-1:]:
            methods = {one.name: one for one in trainer.body if isinstance(one, ast.FunctionDef)}
            for method in _MEASURING:
                for node in ast.walk(methods[method]) if method in methods else ():
                    if isinstance(node, ast.Return) and isinstance(node.value, ast.Dict):
                        keys = [key.value for key in node.value.keys if isinstance(key, ast.Constant)]
                        names += [key for key in keys if isinstance(key, str) and key not in names]
            if any(self._full(base).startswith("hopyard.torch") for base in trainer.bases):
                names += [name for name in _TORCH_METRICS if name not in names]
                self.script.values.setdefault("batch_size", None)  # The base class reads it.
        return names

    def _read_value(self, node: ast.AST, holders: set[str]) -> None:
        match node:
            case ast.Subscript(value=holder, slice=ast.Constant(str(name))) if self._holds(holder, holders):
                self.script.values.setdefault(name, None)
            case ast.Call(func=ast.Attribute(value=holder, attr="get"), args=[ast.Constant(str(name)), *rest]) if (
                self._holds(holder, holders)
            ):
                default = rest[0].value if rest and isinstance(rest[0], ast.Constant) else None
                if self.script.values.get(name) is None:
                    self.script.values[name] = default

    def _read_length(self, tree: ast.Module) -> None:
        """Set `epochs`, `length_option` and `after_loop` of the script."""
        reporting: list[ast.stmt] = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.For | ast.AsyncFor | ast.While) and self._reports_in(node)
        ]
        over_epochs = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.For) and isinstance(node.target, ast.Name) and "epoch" in node.target.id
        ]
        last = over_epochs[-1] if over_epochs else None
        self.script.after_loop = line_after_loop(
            tree, self._is_report if self.script.reports else lambda node: node is last
        )
        numbers = loop_lengths.Numbers(tree, self.script.options)
        found = [numbers.length(loop) for loop in reporting or over_epochs[-1:]]
        lengths = [one for one in found if one is not None]
        if found and len(lengths) == len(found):
            self.script.epochs = math.prod(one.iterations for one in lengths) or None
            self.script.length_option = next((one.option for one in lengths if one.option is not None), None)

    def _reports_in(self, loop: ast.For | ast.AsyncFor | ast.While) -> bool:
        return any(self._is_report(node) for statement in loop.body for node in ast.walk(statement))

    def _is_report(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and self._full(node.func) == _REPORT

    def _holds(self, node: ast.expr, holders: set[str]) -> bool:
        match node:
            case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self"), attr=name):
                return name in holders
            case ast.Call(func=called):
                return self._full(called) == _HYPERPARAMETERS
            case _:
                return False


def _arguments(trainers: list[ast.ClassDef]) -> set[str]:
    """Return the names of the parameters with which methods of these trainer classes receive the hyperparameters."""
    return {
        method.args.args[_GIVEN_AT[method.name]].arg
        for trainer in trainers
        for method in trainer.body
        if isinstance(method, ast.FunctionDef) and len(method.args.args) > _GIVEN_AT.get(method.name, 99)
    }


def _imported(tree: ast.Module) -> dict[str, str]:
    """Return the imported names of a script, each with the dotted name of what it refers to."""
    return dict(_imports(tree))


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                yield one.asname or one.name.partition(".")[0], one.name if one.asname else one.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for one in node.names:
                yield one.asname or one.name, f"{node.module}.{one.name}"
