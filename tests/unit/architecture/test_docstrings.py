"""Tests that docstrings name only parameters, attributes and errors that exist."""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]
CODE = ("sdk/python/hopyard", "services", "policies")
_SECTION = re.compile(r"^(Args|Attributes|Raises):\n((?:(?: {4}.*)?\n?)*)", re.MULTILINE)
_ENTRY = re.compile(r"^ {4}(\*{0,2}\w[\w.]*(?:, \*{0,2}\w[\w.]*)*):", re.MULTILINE)

Documented = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def modules() -> Iterator[tuple[str, ast.Module]]:
    listed = subprocess.run(["git", "ls-files", *CODE], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.split():
        if name.endswith(".py") and "_pb2" not in name and (ROOT / name).exists():
            yield name, ast.parse((ROOT / name).read_text(encoding="utf-8"))


def entries(docstring: str, section: str) -> list[str]:
    """Return the names that a section of a docstring lists."""
    return [
        name.lstrip("*")
        for title, body in _SECTION.findall(docstring)
        if title == section
        for listed in _ENTRY.findall(body)
        for name in listed.split(", ")
    ]


def parameters(found: ast.AST) -> set[str]:
    if not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
        return set()
    every = found.args
    named = [*every.posonlyargs, *every.args, *every.kwonlyargs, every.vararg, every.kwarg]
    return {one.arg for one in named if one is not None}


def fields(found: ast.ClassDef) -> set[str]:
    """Return the names of the attributes that instances of a class may have, as its body and methods define them."""
    names = set[str]()
    for one in ast.walk(found):
        match one:
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                names.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls" | "made"), attr=name):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
    return names


def documented(tree: ast.Module) -> Iterator[tuple[Documented, str]]:
    for found in ast.walk(tree):
        if isinstance(found, Documented) and (docstring := ast.get_docstring(found)):
            yield found, docstring


def constructor(found: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> set[str]:
    """Return the parameters of a class: those of its own constructor, else its fields and the parameters of its bases."""
    own = [one for one in found.body if getattr(one, "name", "") in ("__init__", "__new__")]
    if own:
        return set[str]().union(*map(parameters, own))
    bases = [classes[name] for base in found.bases if (name := ast.unparse(base)) in classes]
    return fields(found).union(*(constructor(base, classes) for base in bases))


def test_args_are_parameters() -> None:
    trees, wrong = dict(modules()), list[str]()
    classes = {one.name: one for tree in trees.values() for one in ast.walk(tree) if isinstance(one, ast.ClassDef)}
    for module, tree in trees.items():
        for found, docstring in documented(tree):
            known = constructor(found, classes) if isinstance(found, ast.ClassDef) else parameters(found)
            wrong += [f"{module}: {found.name}: {name}" for name in entries(docstring, "Args") if name not in known]
    assert not wrong, "\n".join(wrong)


def test_attributes_exist() -> None:
    wrong = []
    for module, tree in modules():
        for found, docstring in documented(tree):
            if isinstance(found, ast.ClassDef):
                known = fields(found)
                wrong += [
                    f"{module}: {found.name}: {name}" for name in entries(docstring, "Attributes") if name not in known
                ]
    assert not wrong, "\n".join(wrong)


def test_errors_exist() -> None:
    trees = dict(modules())
    known = {name for name in vars(builtins) if name[0].isupper()}
    for tree in trees.values():
        for found in ast.walk(tree):
            if isinstance(found, ast.ClassDef):
                known.add(found.name)
            elif isinstance(found, ast.Import | ast.ImportFrom):
                known.update((one.asname or one.name).split(".")[-1] for one in found.names)
            elif isinstance(found, ast.Attribute):
                known.add(found.attr)
    wrong = [
        f"{module}: {found.name}: {name}"
        for module, tree in trees.items()
        for found, docstring in documented(tree)
        for name in entries(docstring, "Raises")
        if name.split(".")[-1] not in known
    ]
    assert not wrong, "\n".join(wrong)


def test_a_wrong_name_is_found() -> None:
    text = "Do it.\n\nArgs:\n    one: The first.\n        More: of it.\n    *two, three: Others.\n\nRaises:\n    Never: At no time.\n"
    assert entries(text, "Args") == ["one", "two", "three"]
    assert entries(text, "Raises") == ["Never"]
    assert entries(text, "Attributes") == []
