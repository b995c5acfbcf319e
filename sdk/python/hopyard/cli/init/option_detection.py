"""Finds the command-line options of a script that uses argparse, click or typer."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_ADDS: Final = ("add_argument", "option")


@dataclass(frozen=True, slots=True)
class Option:
    """A command-line option of a script that takes a value.

    Attributes:
        name: Name by which the script reads the value, such as `lr`.
        flag: The option as typed, such as `--lr`.
        default: The default if it is a number or a string, else None.
        choices: The allowed values; empty: unrestricted.
    """

    name: str
    flag: str
    default: object = None
    choices: tuple[object, ...] = ()


def options_of(tree: ast.Module) -> list[Option]:
    """Return the options of the script with the syntax tree `tree`, in order. Each flag occurs once."""
    found: dict[str, Option] = {}
    for option in _options(tree):
        found.setdefault(option.flag, option)
    return list(found.values())


def _options(tree: ast.Module) -> Iterator[Option]:
    ran = _run_by_typer(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _last_name(node.func) in _ADDS:
            option = _added(node)
            if option is not None:
                yield option
        elif isinstance(node, ast.FunctionDef) and (node.name in ran or _is_command(node)):
            yield from _parameters(node)


def _added(call: ast.Call) -> Option | None:
    """Return the option that a call of `add_argument(...)` or `@option(...)` defines, or None if it takes no value."""
    words = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    flags = [word for word in words if word.startswith("-")]
    keywords = {key.arg: key.value for key in call.keywords if key.arg}
    if not flags or "action" in keywords or "is_flag" in keywords:
        return None
    flag = next((word for word in flags if word.startswith("--")), flags[0])
    named = _constant(keywords.get("dest"))
    plain = [word for word in words if not word.startswith("-")]  # click's name of the parameter
    name = named if isinstance(named, str) else plain[0] if plain else flag.lstrip("-").replace("-", "_")
    return Option(name, flag, _constant(keywords.get("default")), _choices(keywords))


def _choices(keywords: dict[str, ast.expr]) -> tuple[object, ...]:
    given = keywords.get("choices")
    kind = keywords.get("type")
    if isinstance(kind, ast.Call) and _last_name(kind.func) == "Choice" and kind.args:  # click.Choice([...])
        given = kind.args[0]
    values = [_constant(item) for item in given.elts] if isinstance(given, ast.List | ast.Tuple) else []
    return tuple(value for value in values if value is not None)


def _parameters(function: ast.FunctionDef) -> Iterator[Option]:
    """Yield the options of a typer command function: its parameters with a literal default that is not a bool."""
    arguments, defaults = function.args.args, function.args.defaults
    pairs = list(zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True))
    pairs += [(one, d) for one, d in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True) if d]
    for argument, default in pairs:
        flag, value = f"--{argument.arg.replace('_', '-')}", default
        for told in (default, *_annotations(argument.annotation)):
            if isinstance(told, ast.Call) and _last_name(told.func) == "Option":
                words = [_constant(one) for one in told.args]
                flag = next((w for w in words if isinstance(w, str) and w.startswith("--")), flag)
                value = told.args[0] if told is default and told.args else value
        constant = _constant(value)
        if constant is not None and not isinstance(constant, bool):
            yield Option(argument.arg, flag, constant)


def _annotations(annotation: ast.expr | None) -> list[ast.expr]:
    """Return the metadata of an annotation `Annotated[type, metadata...]`; empty for another annotation."""
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple):
        return annotation.slice.elts[1:]
    return []


def _run_by_typer(tree: ast.Module) -> set[str]:
    """Return the names of the functions passed to `typer.run`."""
    return {
        node.args[0].id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "run"
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "typer"
        and node.args
        and isinstance(node.args[0], ast.Name)
    }


def _is_command(function: ast.FunctionDef) -> bool:
    """Return whether a function is a typer command: it has a decorator `command`, but no decorator `option` or `argument`.

    A function with one of the latter is a click command, whose options are its decorators and not its parameters.
    """
    names = [_last_name(one.func if isinstance(one, ast.Call) else one) for one in function.decorator_list]
    return "command" in names and "option" not in names and "argument" not in names


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _constant(node: ast.expr | None) -> object:
    """Return the value of a literal (number, string or bool), or None for other expressions."""
    match node:
        case ast.Constant(value=value) if isinstance(value, bool | int | float | str):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)) if isinstance(value, int | float):
            return -value
        case _:
            return None
