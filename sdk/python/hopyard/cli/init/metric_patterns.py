"""Finds the metrics that a script prints: in the arguments of `print` and loggers, a word such as "loss" or "acc" before a number."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

NUMBER: Final = r"([-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|[-+]?(?:nan|NaN|inf)\b)"

_PRINTS: Final = frozenset({"print", "info", "debug", "warning", "log", "write", "echo"})
_METRIC: Final = re.compile(
    r"acc|loss|err|score|f1|auc|reward|return|r2|rmse|mse|mae|perplexity|ppl|bleu|iou|dice|precision|recall|metric|fitness",
    re.IGNORECASE,
)
_WORD: Final = re.compile(r"([A-Za-z][\w/-]*)([^\w]*)$")
_PERCENT: Final = re.compile(r"%[-+ #0]*\d*(?:\.\d+)?[a-zA-Z]")
_BRACES: Final = re.compile(r"\{[^{}]*\}")


def patterns_of(tree: ast.Module) -> dict[str, str]:
    """Return the metrics that a script prints, by name, each with a regular expression that finds its value in the output.

    Empty: none was found.

    Args:
        tree: The syntax tree of the script.
    """
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) in _PRINTS:
            for before in _texts_before_numbers(node.args):
                word = _WORD.search(before)
                if word is not None and _METRIC.search(word[1]):
                    pattern = re.escape(word[1]).replace(r"\-", "-") + _between(word[2]) + NUMBER
                    found.setdefault(re.sub(r"\W+", "_", word[1]).lower(), pattern)
    return found


def _texts_before_numbers(arguments: list[ast.expr]) -> Iterator[str]:
    """Yield the literal text before each value that a call of `print` or of a logger with these arguments prints."""
    line = ""
    for argument in arguments:
        match argument:
            case ast.JoinedStr(values=parts):
                for part in parts:
                    if isinstance(part, ast.Constant):
                        line += str(part.value)
                    else:
                        yield line
                        line = ""
            case ast.Constant(value=str(text)) | ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod()) if (
                _PERCENT.search(text)
            ):
                yield from (text[: found.start()] for found in _PERCENT.finditer(text))
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
                yield from (text[: found.start()] for found in _BRACES.finditer(text))
            case ast.Constant(value=str(text)):
                line += text
            case _:
                yield line
                line = ""
        line += " "


def _between(separators: str) -> str:
    """Return a regular expression that matches the text `separators`, such as ": ", between a word and a number.

    Where `separators` has white space, the expression matches any amount of it, also none.
    """
    return "".join(r"\s*" if part.isspace() else re.escape(part) for part in re.findall(r"\s+|\S", separators))


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""
