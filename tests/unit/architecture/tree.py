"""The source tree for the architecture tests, and calls of import-linter on it or on a copy."""

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

with (ROOT / "pyproject.toml").open("rb") as _file:
    PROJECT = tomllib.load(_file)

# Folder of each package, relative to the root: {"hopyard": "sdk/python/hopyard", ...}.
PACKAGES = {Path(path).name: path for path in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]}
CONTRACTS = {contract["id"]: contract["name"] for contract in PROJECT["tool"]["importlinter"]["contracts"]}


def copy_tree(target: Path) -> None:
    """Copy every package and the configuration to a folder, so that tests can create violations without a change of the tree."""
    for path in PACKAGES.values():
        shutil.copytree(ROOT / path, target / path, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", target)


def lint_imports(root: Path, contracts: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run import-linter on a tree, and return the finished process.

    Args:
        root: Root of the tree: the repository, or a copy of it.
        contracts: Ids of the contracts to check; empty: all.
    """
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-logo", "--no-cache"]
    command += [f"--contract={contract}" for contract in contracts]
    folders = sorted({str(root / Path(path).parent) for path in PACKAGES.values()})
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders), "COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


def imported_modules(source: str) -> dict[str, int]:
    """Return every absolute name that a source imports, anywhere in it, with the number of the line.

    `from a import b` gives both `a` and `a.b`, because b may be a module.
    """
    names: dict[str, int] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name: node.lineno for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module: node.lineno} | {f"{node.module}.{alias.name}": node.lineno for alias in node.names}
    return names


def imports_any(source: str, packages: Sequence[str]) -> list[str]:
    """Return the names that a source imports from any of the packages."""
    return [name for name in imported_modules(source) if any(f"{name}.".startswith(f"{root}.") for root in packages)]
