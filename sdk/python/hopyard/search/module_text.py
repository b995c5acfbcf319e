"""Writes a function and everything that it needs from its script or notebook as the text of one module."""

from __future__ import annotations

import builtins
import inspect
import pathlib
import sys
from collections.abc import Mapping
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final

from hopyard.errors import InvalidInput
from hopyard.search import source_text

_FUTURE_ANNOTATIONS: Final = 0x1000000
"""The flag of code objects compiled under `from __future__ import annotations`."""

_LONGEST_VALUE: Final = 256 * 1024
_CLUSTER_PACKAGES: Final = ("hopyard.client", "hopyard.search", "hopyard.study")


def module_text(function: FunctionType) -> str:
    """Return the text of a module that defines a function, with the names of its own module that it uses.

    Modules, functions and classes of other modules are imported. Functions and classes of the function's script or notebook are copied.
    Plain values are written as they are now. For any other value, the assignment that created it is copied, so each training process
    creates it again.

    Args:
        function: A function of a script or a notebook, or one that another function defines.

    Raises:
        InvalidInput: The source of the function is not known, or a name that it uses can be neither imported nor written.
    """
    writer = _ModuleWriter(function)
    writer.define(function.__name__, function)
    return writer.text()


class _ModuleWriter:
    """Collects the statements of the module that `module_text` returns, each after those that it needs.

    Args:
        function: The function that the module must define.
    """

    def __init__(self, function: FunctionType) -> None:
        self._function = function.__name__
        self._home = function.__module__
        self._texts = source_text.module_texts(self._home)
        self._imports: dict[str, None] = {}
        self._statements: list[str] = []
        self._values: dict[str, Any] = {}
        self._copied = set[str]()
        if function.__code__.co_flags & _FUTURE_ANNOTATIONS:
            self._imports["from __future__ import annotations"] = None

    def text(self) -> str:
        """Return the text of the module."""
        head = f'"""The function {self._function} of a search, with what it needs. Written by Hopyard."""\n'
        return "\n\n".join([head + "\n".join(self._imports), *(one.rstrip() for one in self._statements)]) + "\n"

    def define(self, name: str, value: Any, user: str = "") -> None:
        """Add the statements that define a name in the module, unless the name is already defined there.

        Args:
            name: The name.
            value: Its value.
            user: The source text that uses the name. If `value` is a module, its submodules that this text uses are imported, too.

        Raises:
            InvalidInput: The value cannot be sent, or the name has two different values.
        """
        if name in self._values:
            if not _same(self._values[name], value):
                raise InvalidInput(
                    f"{self._function}(): the name {name!r} has two different values in the functions that it uses; give one of "
                    "them another name"
                )
            if isinstance(value, ModuleType):
                self._import_submodules(user, name, value)
            return
        self._values[name] = value
        if isinstance(value, ModuleType):
            parent, _, last = value.__name__.rpartition(".")
            self._import(f"from {parent} import {last} as {name}" if parent else f"import {value.__name__} as {name}")
            self._import_submodules(user, name, value)
        elif self._is_copied(value):
            self._copy(name, value)
        elif (imported := self._imported(name, value)) is not None:
            self._import(imported)
        elif (text := _value(value)) is not None:
            if isinstance(value, pathlib.PurePath):
                self._import("import pathlib")
            self._statements.append(f"{name} = {text}")
        else:
            self._copy_statement(name, value)

    def _import(self, statement: str) -> None:
        first, _, last = statement.rpartition(" as ")
        self._imports[first if first.endswith(f" {last}") else statement] = None

    def _import_submodules(self, user: str, name: str, module: ModuleType) -> None:
        for submodule in source_text.submodules(user, name, module.__name__) if user else ():
            self._import(f"import {submodule}")

    def _is_copied(self, value: Any) -> bool:
        """Return whether a value is a function or class whose definition is copied, because it cannot be imported."""
        plain = inspect.unwrap(value) if callable(value) else value
        if not isinstance(plain, FunctionType | type) or plain.__name__ == "<lambda>":
            return False
        return plain.__module__ == "__main__" or (plain.__module__ == self._home and "<locals>" in plain.__qualname__)

    def _imported(self, name: str, value: Any) -> str | None:
        """Return the statement that imports a value; None: it cannot be imported."""
        places = [(getattr(value, "__module__", None), getattr(value, "__qualname__", ""))]
        if not isinstance(value, FunctionType | BuiltinFunctionType | type):
            places = []
        if self._home != "__main__":
            places.append((self._home, name))
        for module, attribute in places:
            loaded = sys.modules.get(module or "")
            if module != "__main__" and loaded is not None and vars(loaded).get(attribute, _MISSING) is value:
                return f"from {module} import {attribute} as {name}"
        return None

    def _copy(self, name: str, value: Any) -> None:
        plain = inspect.unwrap(value)
        space = vars(sys.modules[plain.__module__]) if plain.__module__ in sys.modules else {}
        if isinstance(plain, FunctionType):
            space = {**plain.__globals__, **source_text.closure(plain)}
            whole = plain is not value or space.get(plain.__name__) is value or "<locals>" in plain.__qualname__
            text = source_text.function_text(plain, decorated=whole)
        else:
            for method in vars(plain).values():
                if isinstance(method, FunctionType):
                    space = {**space, **source_text.closure(method)}
            text = source_text.class_text(plain)
        if text is None:
            raise InvalidInput(
                f"the source of {plain.__name__} is not known, so it cannot be sent to the training processes; put it into a file, "
                "and import it from there"
            )
        self._values.setdefault(plain.__name__, value)
        self._copy_text(text, space)
        if name != plain.__name__:
            self._statements.append(f"{name} = {plain.__name__}")

    def _copy_statement(self, name: str, value: Any) -> None:
        text = None
        if not type(value).__module__.startswith(_CLUSTER_PACKAGES):
            text = source_text.binding(name, self._texts)
        if text is None:
            raise InvalidInput(
                f"{self._function}() uses {name!r}, a value of type {type(value).__qualname__}, which cannot be sent to the training "
                "processes; allowed: modules, functions, classes, numbers, texts, lists and dicts of these, and what one assignment at "
                "the top level of the script or of a cell creates; create it inside the function, or read it from a file there"
            )
        if source_text.is_import(text):
            self._import(text)
        else:
            self._copy_text(text, vars(sys.modules[self._home]))

    def _copy_text(self, text: str, space: Mapping[str, Any]) -> None:
        if text in self._copied:  # A statement may define several names.
            return
        self._copied.add(text)
        for name in sorted(source_text.used_names(text)):
            if name in space and not (name.startswith("__") or space[name] is getattr(builtins, name, _MISSING)):
                self.define(name, space[name], text)
        self._statements.append(text)


_MISSING: Final = object()


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    text = _value(one)
    return text is not None and text == _value(other)


def _value(value: Any) -> str | None:
    if isinstance(value, pathlib.PurePath):
        return f"pathlib.{type(value).__name__}({str(value)!r})"
    text = source_text.value_text(value)
    return text if text is not None and len(text) <= _LONGEST_VALUE else None
