"""Finds source text: of functions, classes, and of the statements by which a script or a notebook defined a name."""

from __future__ import annotations

import ast
import inspect
import linecache
import symtable
import sys
import textwrap
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any, Final

_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def function_text(function: FunctionType, *, decorated: bool = True) -> str | None:
    """Return the definition of a function without indentation; None: its source is not known.

    Args:
        function: The function.
        decorated: Whether to include its decorators.
    """
    code = function.__code__
    text = _file_text(code.co_filename)
    for node in _nodes(text):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == code.co_name:
            first = _first_line(node)
            if code.co_firstlineno == first:
                return _segment(text, first if decorated else node.lineno, node)
    return None


def class_text(found: type) -> str | None:
    """Return the definition of a class without indentation, or None if its source is not known."""
    methods = [inspect.unwrap(one) for one in vars(found).values() if callable(one)]
    texts = [_file_text(one.__code__.co_filename) for one in methods if isinstance(one, FunctionType)]
    for text in [*texts, *module_texts(found.__module__)]:
        for node in _nodes(text):
            if isinstance(node, ast.ClassDef) and node.name == found.__name__:
                return _segment(text, _first_line(node), node)
    return None


def module_texts(module: str) -> list[str]:
    """Return the source texts of a loaded module: of a file its text, of a notebook the executed cells, newest first.

    The list is empty if the module is neither.
    """
    found = sys.modules.get(module)
    file = getattr(found, "__file__", None)
    if isinstance(file, str):
        return [_file_text(file)]
    cells = getattr(found, "In", None)
    return [cell for cell in reversed(cells) if isinstance(cell, str)] if isinstance(cells, list) else []


def binding(name: str, texts: list[str]) -> str | None:
    """Return the statement at the top level of a module that gives a name its value, which is not a plain function or class.

    The statement is an import, an assignment, or a definition whose decorator returned another kind of value. Plain functions and
    classes are not its subject: `function_text` and `class_text` find their definitions.

    Args:
        name: The name.
        texts: The texts of the module, newest first, as `module_texts` returns them: one of a file, one per executed cell of a
            notebook. The newest text that defines or changes the name decides, because it has replaced the values of older ones.

    Returns:
        The statement; of an import, only the part for `name`. None: there is none, or it alone does not give the value, because its
        text defines the name several times or changes the value in place, or because the statement uses the old value.
    """
    for text in texts:
        body = _body(text)
        found = [node for node in body if name in _bound(node)]
        if not found and not any(_changes(node, name) for node in body):
            continue
        if len(found) != 1 or any(_changes(node, name) for node in body):
            return None
        node = found[0]
        if isinstance(node, ast.Import | ast.ImportFrom):
            return _import_text(node, name)
        if isinstance(node, _DEFINITIONS):  # A decorator has returned another kind of value.
            return _segment(text, _first_line(node), node)
        if not isinstance(node, ast.Assign | ast.AnnAssign) or name in used_names(ast.unparse(node)):
            return None
        return _segment(text, node.lineno, node)
    return None


def is_import(text: str) -> bool:
    """Return whether a text is an import statement."""
    return any(isinstance(node, ast.Import | ast.ImportFrom) for node in _body(text))


def used_names(text: str) -> set[str]:
    """Return the names that the source text of statements uses at its top level or as globals, including built-in functions.

    Raises:
        SyntaxError: The text is no valid Python.
    """
    names = set[str]()
    table = symtable.symtable(text, "<objective>", "exec")

    def visit(scope: symtable.SymbolTable) -> None:
        top = scope is table
        for symbol in scope.get_symbols():
            if symbol.is_referenced() and (top or symbol.is_global()):
                names.add(symbol.get_name())
        for child in scope.get_children():
            visit(child)

    visit(table)
    return names


def submodules(text: str, name: str, module: str) -> Iterator[str]:
    """Yield the full names of the loaded submodules that a text uses as attributes of a module, such as `sklearn.datasets`.

    Args:
        text: The source text.
        name: The name to which the text binds the module, such as `np`.
        module: The full name of the module, such as `numpy`.
    """
    for node in ast.walk(ast.parse(text)):
        path = list[str]()
        while isinstance(node, ast.Attribute):
            path.insert(0, node.attr)
            node = node.value
        if isinstance(node, ast.Name) and node.id == name:
            for end in range(1, len(path) + 1):
                full = ".".join([module, *path[:end]])
                if full in sys.modules:
                    yield full


def imported_modules(text: str) -> set[str]:
    """Return the top-level names of all modules that a text imports, anywhere in it."""
    names = set[str]()
    for node in _nodes(text):
        if isinstance(node, ast.Import):
            names |= {one.name.partition(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def value_text(value: object) -> str | None:
    """Return an expression for a plain value (number, text, bytes, None, or a tuple, list, set or dict of these), else None."""
    if value is None or type(value) in (bool, int, str, bytes):
        return repr(value)
    if type(value) is float:
        return repr(value) if value == value and abs(value) != float("inf") else f'float("{value}")'
    if type(value) is dict:
        pairs = [(value_text(key), value_text(item)) for key, item in value.items()]
        if any(key is None or item is None for key, item in pairs):
            return None
        return "{" + ", ".join(f"{key}: {item}" for key, item in pairs) + "}"
    if isinstance(value, list | tuple | set | frozenset) and type(value) in (list, tuple, set, frozenset):
        items = [value_text(item) for item in value]
        if any(item is None for item in items):
            return None
        listed = ", ".join(sorted(map(str, items)) if isinstance(value, set | frozenset) else map(str, items))
        if type(value) is tuple:
            return f"({listed}{',' if len(items) == 1 else ''})"
        return f"[{listed}]" if type(value) is list else f"{type(value).__name__}([{listed}])"
    return None


def closure(function: FunctionType) -> Mapping[str, Any]:
    """Return the values of the enclosing functions' variables that a function uses, by name."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    found = dict[str, Any]()
    for name, cell in cells:
        try:
            found[name] = cell.cell_contents
        except ValueError:  # The variable has no value yet.
            continue
    return found


def _file_text(file: str) -> str:
    linecache.checkcache(file)
    return "".join(linecache.getlines(file))


def _body(text: str) -> list[ast.stmt]:
    try:
        return ast.parse(text).body
    except (SyntaxError, ValueError):
        return []


def _nodes(text: str) -> Iterator[ast.AST]:
    for node in _body(text):
        yield from ast.walk(node)


def _segment(text: str, first: int, node: ast.stmt) -> str:
    """Return the lines of a statement without indentation.

    Args:
        text: The source text that contains the statement.
        first: Number of the first line to return, counted from 1: that of the statement or of its first decorator.
        node: The statement.
    """
    lines = text.splitlines(keepends=True)
    if first == node.lineno and not isinstance(node, _DEFINITIONS):
        return ast.get_source_segment(text, node) or ast.unparse(node)
    return textwrap.dedent("".join(lines[first - 1 : node.end_lineno])).rstrip() + "\n"


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    return min([node.lineno, *(one.lineno for one in node.decorator_list)])


def _import_text(node: ast.Import | ast.ImportFrom, name: str) -> str:
    chosen = [one for one in node.names if (one.asname or one.name.partition(".")[0]) == name]
    copy = ast.Import(chosen) if isinstance(node, ast.Import) else ast.ImportFrom(node.module, chosen, node.level)
    return ast.unparse(copy)


def _bound(node: ast.stmt) -> set[str]:
    """Return the names that a statement at the top level binds, also within `if`, `for`, `with` and `try`."""
    if isinstance(node, _DEFINITIONS):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {one.asname or one.name.partition(".")[0] for one in node.names}
    if isinstance(node, ast.AugAssign):
        return set()
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def _changes(node: ast.stmt, name: str) -> bool:
    """Return whether a statement at the top level changes the value of a name in place, or deletes the name."""
    if isinstance(node, _DEFINITIONS):
        return False
    for one in ast.walk(node):
        if isinstance(one, ast.AugAssign) and _root(one.target) == name:
            return True
        stored = isinstance(one, ast.Attribute | ast.Subscript) and isinstance(one.ctx, ast.Store | ast.Del)
        if stored and _root(one) == name:
            return True
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Del) and one.id == name:
            return True
    return False


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
