"""Print figures about the structure of the code: the size of its packages, and what makes it hard to navigate.

    python scripts/structure.py            a table
    python scripts/structure.py --json     one JSON document
    python scripts/structure.py --list crowded_packages    the items that a figure counts

`tests/unit/architecture/test_structure.py` limits the figures.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import statistics
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
GENERATED: Final = ("hopyard.v1",)
CROWDED: Final = 15
"""Maximum number of modules and sub-packages of a package at one level."""
SMALL_LINES: Final = 60

# Standard nouns that end like a gerund or a participle.
NOUNS: Final = frozenset(
    [
        "coalescing",
        "embedded",
        "formatting",
        "halving",
        "hashing",
        "nesting",
        "planning",
        "profiling",
        "replanning",
        "scaling",
        "sharing",
        "testing",
    ]
)
_REASON: Final = re.compile(r"^(reason|why|error|text|message|said|detail)$")


@dataclass(frozen=True)
class Module:
    """A Python module of the product.

    Attributes:
        name: Its dotted name; for a package, the name of the package.
        path: Its file.
        package: Whether it is the `__init__` of a package.
    """

    name: str
    path: Path
    package: bool

    @cached_property
    def source(self) -> str:
        """The text of the file."""
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.source)

    @property
    def lines(self) -> int:
        """The number of lines."""
        return self.source.count("\n")


def modules(root: Path = ROOT) -> dict[str, Module]:
    """Return the modules of all packages that are installed, without generated code, by dotted name."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    found = {}
    for folder in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        base = (root / folder).parent
        for path in sorted((root / folder).rglob("*.py")):
            name = ".".join(path.relative_to(base).with_suffix("").parts)
            package = path.name == "__init__.py"
            name = name.removesuffix(".__init__")
            if not name.startswith(GENERATED):
                found[name] = Module(name, path, package)
    return found


def imports(found: Mapping[str, Module]) -> dict[str, set[str]]:
    """Return for each module the modules of the product that it imports when it is loaded. Imports inside functions do not count."""
    return {name: set(_imported(module, found)) - {name} for name, module in found.items()}


def _imported(module: Module, found: Mapping[str, Module]) -> Iterator[str]:
    for node in _loaded(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in found)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in found:
                    yield full
                elif node.module in found:
                    yield node.module


def _loaded(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below a node that are executed when a module is loaded, including imports for type checkers only."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _loaded(child)


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other in a cycle (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph.get(name, ())):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            group = sorted(stack[at:])
            del stack[at:]
            if len(group) > 1:
                found.append(group)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    try:
        for name in sorted(graph):
            if name not in index:
                visit(name)
    finally:
        sys.setrecursionlimit(limit)
    return found


def classes(found: Mapping[str, Module]) -> dict[str, list[str]]:
    """Return the public top-level classes: for each name, the modules that define a class of that name."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for name, module in found.items():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name)
    return dict(places)


def text_comparisons(found: Mapping[str, Module]) -> list[str]:
    """Return the places where code compares the text of a reason or an error with a constant, each with the expression."""
    places = []
    for name, module in found.items():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                starts = node.func.attr in ("startswith", "endswith") and _is_reason(node.func.value)
                if starts:
                    places.append(f"{name}:{node.lineno} {ast.unparse(node)}")
            elif isinstance(node, ast.Compare) and any(isinstance(op, ast.Eq | ast.NotEq | ast.In) for op in node.ops):
                sides = [node.left, *node.comparators]
                texts = any(
                    isinstance(side, ast.Constant) and isinstance(side.value, str) and side.value for side in sides
                )
                if texts and any(_is_reason(side) for side in sides):
                    places.append(f"{name}:{node.lineno} {ast.unparse(node)}")
    return places


def _is_reason(node: ast.AST) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return bool(_REASON.match(name))


def figures(root: Path = ROOT) -> dict[str, list[str] | int | float]:
    """Return all figures by name: each is a number, or the list of the items that are counted."""
    found = modules(root)
    graph = imports(found)
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for name, others in graph.items():
        for other in others:
            importers[other].add(name)
    levels: defaultdict[str, int] = defaultdict(int)
    for name in found:
        levels[name.rpartition(".")[0]] += 1
    named = [name for name, module in found.items() if not module.package]
    twice = {name: places for name, places in classes(found).items() if len(places) > 1}
    same = {name for name, places in twice.items() if len({place.partition(".")[0] for place in places}) < len(places)}
    lines = [module.lines for module in found.values()]
    return {
        "modules": len(found),
        "lines": sum(lines),
        "median_lines": statistics.median(lines),
        "packages": sum(module.package for module in found.values()),
        "crowded_packages": [f"{name} ({count})" for name, count in sorted(levels.items()) if name and count > CROWDED],
        "import_cycles": [" ".join(group) for group in cycles(graph)],
        "gerund_or_participle_modules": [
            name
            for name in named
            if (last := re.split(r"[._]", name)[-1]).endswith(("ing", "ed")) and last not in NOUNS and len(last) > 4
        ],
        "class_names_used_twice": [f"{name}: {', '.join(places)}" for name, places in sorted(twice.items())],
        "class_names_used_twice_in_a_package": [f"{name}: {', '.join(twice[name])}" for name in sorted(same)],
        "text_comparisons": text_comparisons(found),
        "small_modules_with_one_importer": [
            name for name in named if found[name].lines < SMALL_LINES and len(importers[name]) == 1
        ],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--list", metavar="FIGURE", help="print what a figure counts")
    options = parser.parse_args(arguments)
    found = figures()
    if options.list is not None:
        if not isinstance(items := found.get(options.list), list):
            lists = ", ".join(name for name, value in found.items() if isinstance(value, list))
            parser.error(f"--list: found {options.list}, allowed are {lists}")
        sys.stdout.write("".join(f"{item}\n" for item in items))
    elif options.json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        for name, value in found.items():
            sys.stdout.write(f"{name.replace('_', ' '):40} {len(value) if isinstance(value, list) else value:>8}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
