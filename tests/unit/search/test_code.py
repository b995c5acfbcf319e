"""Which code is sent for an objective function, and which functions are refused."""

from __future__ import annotations

import functools
import importlib
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hopyard._runtime import bundle
from hopyard.errors import InvalidInput
from hopyard.search.code import WRITTEN, function_code
from tests.unit.search.mains import notebook, script

pytestmark = pytest.mark.quick


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the package `nets_for_test` and the module `more_for_test`, on the import path."""
    (tmp_path / "nets_for_test").mkdir()
    (tmp_path / "nets_for_test/__init__.py").write_text("import more_for_test\n")
    (tmp_path / "nets_for_test/deep.py").write_text(
        "def objective(trial):\n    return 1\n\n"
        "def made(n):\n    def inner(trial):\n        return objective(trial) + n\n    return inner\n"
    )
    (tmp_path / "more_for_test.py").write_text("")
    (tmp_path / "big.csv").write_text("1,2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.endswith("_for_test") or name.startswith("nets_for_test")]:
        del sys.modules[name]


def test_a_function_of_a_module_is_sent_with_the_folder_it_is_imported_from(package: Path) -> None:
    deep = importlib.import_module("nets_for_test.deep")
    code = function_code(deep.objective)
    assert (code.module, code.function, code.folder, code.files) == ("nets_for_test.deep", "objective", package, {})
    inner = function_code(deep.made(2))
    assert (inner.module, inner.folder) == (WRITTEN, package)
    assert b"from nets_for_test.deep import objective" in inner.files[f"{WRITTEN}.py"]


def test_a_script_is_sent_with_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = script(monkeypatch, tmp_path, "def objective(trial):\n    return 1\n")
    code = function_code(name("objective"))
    assert (code.module, code.folder, list(code.files)) == (WRITTEN, tmp_path, [f"{WRITTEN}.py"])


def test_a_notebook_is_sent_with_the_modules_that_the_function_imports(
    monkeypatch: pytest.MonkeyPatch, package: Path
) -> None:
    monkeypatch.chdir(package)
    name = notebook(
        monkeypatch, "def objective(trial):\n    from nets_for_test.deep import objective as one\n    return one(trial)"
    )
    code = function_code(name("objective"))
    assert code.folder is None
    assert sorted(code.files) == [
        f"{WRITTEN}.py",
        "more_for_test.py",
        "nets_for_test/__init__.py",
        "nets_for_test/deep.py",
    ]
    whole = function_code(name("objective"), package)
    assert (whole.folder, list(whole.files)) == (package, [f"{WRITTEN}.py"])


def test_an_installed_function_is_sent_without_a_folder() -> None:
    code = function_code(importlib.import_module("textwrap").dedent)
    assert (code.module, code.function, code.folder, code.files) == ("textwrap", "dedent", None, {})


def by_class() -> Callable[..., Any]:
    return type("Objective", (), {"run": lambda self, trial: 1})


async def asynchronous(trial: Any) -> int:
    return 1


def two_arguments(trial: Any, other: Any) -> int:
    return 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda trial: 1, "found a lambda, which has no name; allowed: a function defined with def"),
        (functools.partial(two_arguments, other=1), "found a functools.partial; allowed: a function defined with def"),
        (by_class(), "found the class Objective; .*`trainer` of client.create"),
        ([].append, "found <built-in method append"),
        (math.sqrt, "found <built-in function sqrt>"),
        (asynchronous, "asynchronous is a generator or an async function"),
        (two_arguments, r"two_arguments\(trial.*cannot be called with one argument, its trial: missing a required argument: 'other'"),
        (Path("x").joinpath, "found the method PurePath.joinpath of an object"),
    ],
)  # fmt: skip
def test_what_is_no_plain_function_is_refused(function: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        function_code(function)


def test_a_file_with_the_written_name_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = script(monkeypatch, tmp_path, "def objective(trial):\n    return 1\n")
    (tmp_path / f"{WRITTEN}.py").write_text("")
    with pytest.raises(InvalidInput, match="Hopyard writes a module of this name; rename the file"):
        function_code(name("objective"))
    with pytest.raises(InvalidInput, match="is not a folder"):
        function_code(name("objective"), tmp_path / "nowhere")


def test_files_are_packed_beside_a_folder_or_alone(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("old")
    (tmp_path / "b.py").write_text("b")
    packed = bundle.pack(tmp_path, extra={"a.py": b"new"})
    assert packed.files == ("a.py", "b.py")
    target = tmp_path / "out"
    (tmp_path / "file").write_bytes(packed.data)
    bundle.unpack(tmp_path / "file", target, packed.sha256)
    assert (target / "a.py").read_text() == "new"
    assert bundle.pack(None, extra={"a.py": b"new"}).files == ("a.py",)
    with pytest.raises(bundle.BundleTooLarge, match=r"the files to send have 0.0 MB; .* The biggest file: b.bin"):
        bundle.pack(None, extra={"a.py": b"new", "b.bin": b"1234"}, limit_bytes=6)
