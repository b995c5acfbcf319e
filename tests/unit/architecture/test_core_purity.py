"""Tests that the core and its vocabulary import only the modules of an allow-list; contracts of import-linter forbid single modules."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.architecture.tree import PACKAGES, ROOT

pytestmark = pytest.mark.quick

CORE = ROOT / PACKAGES["hopyard_engine"] / "core"
VOCABULARY = ROOT / PACKAGES["hopyard"] / "policy" / "vocabulary"
ALLOWED_OWN = ("hopyard_engine.core", "hopyard.policy.vocabulary")

# Built-in functions that do I/O or whose results differ from process to process.
IMPURE_BUILTINS = {"__import__", "breakpoint", "eval", "exec", "hash", "id", "input", "open", "print"}


def impurities(source: str, where: str) -> Iterator[str]:
    """Yield each import and each call of a built-in function that a deterministic module must not use."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Import | ast.ImportFrom | ast.Call):
            continue
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield f"{where}:{node.lineno}: a relative import"
            elif node.module in {"hopyard.policy", "hopyard_engine"}:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                names = [node.module or ""]
        elif isinstance(node.func, ast.Name) and node.func.id in IMPURE_BUILTINS:
            yield f"{where}:{node.lineno}: calls {node.func.id}()"
        for name in names:
            own = any(name == allowed or name.startswith(f"{allowed}.") for allowed in ALLOWED_OWN)
            if not own and name.split(".")[0] not in sys.stdlib_module_names:
                yield f"{where}:{node.lineno}: imports {name}"


def deterministic_modules() -> list[Path]:
    return [*sorted(CORE.rglob("*.py")), *sorted(VOCABULARY.rglob("*.py"))]


@pytest.mark.parametrize("path", deterministic_modules(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_standard_library_only_and_no_impure_built_in(path: Path) -> None:
    assert list(impurities(path.read_text(), path.name)) == []


@pytest.mark.parametrize(
    "source",
    [
        "import attrs",
        "import hopyard",
        "from hopyard.policy import Policy",
        "from hopyard_engine import journal",
        "from . import jobs",
        "def peek(path):\n    return open(path)",
        "order = sorted(jobs, key=lambda job: hash(job))",
    ],
)
def test_a_seeded_impurity_is_caught(source: str) -> None:
    assert len(list(impurities(source, "seeded"))) == 1


def test_what_the_core_may_import() -> None:
    source = (
        "from __future__ import annotations\nimport enum\nfrom collections import deque\n"
        "from hopyard.policy import vocabulary\nfrom hopyard.policy.vocabulary import JobState\n"
        "from hopyard_engine.core.jobs import Job\n"
    )
    assert list(impurities(source, "allowed")) == []
