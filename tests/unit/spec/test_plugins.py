"""Tests of the search for plugins, and of the errors when there is none."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hopyard._common.plugins import GENERATORS, PluginError, load_plugin, plugin_names, unknown_parameters
from hopyard.generator import Generator

pytestmark = pytest.mark.quick

MODULE = """
from hopyard.generator import Generator

class Mine(Generator):
    def create(self, job, ordinal):
        return None

class Half(Generator):
    pass

class Other:
    class Inner(Mine):
        pass

answer = 42
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    (tmp_path / "strange_plugins.py").write_text(MODULE)
    (tmp_path / "strange_broken.py").write_text("import strange_absent")
    (tmp_path / "strange_raises.py").write_text("1 / 0")
    (tmp_path / "strange_leaves.py").write_text("import sys; sys.exit(4)")
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("strange_"):
            del sys.modules[name]


def entry_points(folder: Path, distribution: str, text: str) -> None:
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[strange.plugins]\n{text}")


def test_built_in_ones_are_found_by_entry_point() -> None:
    assert {"grid", "random"} <= set(plugin_names(GENERATORS))
    found = load_plugin(GENERATORS, "random", Generator)
    assert isinstance(found, type)
    assert found.__name__ == "RandomGenerator"


def test_ones_own_are_named_by_path(folder: Path) -> None:
    found = load_plugin(GENERATORS, "strange_plugins:Mine", Generator)
    assert isinstance(found, type)
    assert issubclass(found, Generator)
    assert load_plugin(GENERATORS, "strange_plugins:Other.Inner", Generator)
    assert load_plugin(GENERATORS, "strange_plugins:answer") == 42


def test_another_distributions_are_found_by_name(folder: Path) -> None:
    entry_points(folder, "strange", "mine = strange_plugins:Mine\n")
    assert plugin_names("strange.plugins") == ["mine"]
    assert load_plugin("strange.plugins", "mine", Generator)


def test_one_that_is_installed_later_is_found_and_one_that_is_gone_is_not(folder: Path) -> None:
    entry_points(folder, "strange", "mine = strange_plugins:Mine\n")
    assert plugin_names("strange.plugins") == ["mine"]
    entry_points(folder, "other", "later = strange_plugins:Mine\n")
    # The change must be visible although the file system's clock may be coarse.
    os.utime(folder, ns=(1, 1))
    assert plugin_names("strange.plugins") == ["later", "mine"]
    assert load_plugin("strange.plugins", "later", Generator)
    shutil.rmtree(folder / "strange-1.0.dist-info")
    os.utime(folder, ns=(2, 2))
    assert plugin_names("strange.plugins") == ["later"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("randm", r"no plugin is called 'randm' \(did you mean random\?\); there are: .*grid.*random"),
        ("strange_plugins:Min", r"no Min there \(did you mean Mine\?\); its classes: Generator, Half, Mine, Other"),
        ("strange_plugins:Other.Outer", "no Outer there; its classes: Inner"),
        ("strange_nowhere:Mine", "there is no module strange_nowhere on the search path"),
        ("strange_plugins.sub:Mine", "there is no module strange_plugins.sub on the search path"),
        (
            "strange_broken:Mine",
            "importing strange_broken failed: ModuleNotFoundError: No module named 'strange_absent'",
        ),
        ("strange_raises:Mine", "importing strange_raises failed: ZeroDivisionError: division by zero"),
        ("strange_leaves:Mine", "importing strange_leaves failed: SystemExit: 4"),
        ("strange_plugins:", "is not of the form package.module:Class"),
        ("polly.py:Polly", r"did you mean polly:Polly\? it is imported, as a module"),
        ("train.py/x:Mine", "is not of the form package.module:Class"),
        ("strange_plugins:answer", "is a int, and must be a class derived from hopyard.generator.base.Generator"),
        ("strange_plugins:Other", "is a class that is not derived from hopyard.generator.base.Generator"),
        ("strange_plugins:Half", "does not define create, which hopyard.generator.base.Generator asks for"),
    ],
)
def test_what_is_wrong_is_said(folder: Path, name: str, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        load_plugin(GENERATORS, name, Generator)


def test_a_name_that_two_claim_is_refused(folder: Path) -> None:
    entry_points(folder, "one", "mine = strange_plugins:Mine\n")
    entry_points(folder, "two", "mine = strange_plugins:Half\n")
    with pytest.raises(PluginError, match="strange_plugins:Half from two, strange_plugins:Mine from one"):
        load_plugin("strange.plugins", "mine")


@pytest.mark.parametrize("module", ["strange_raises", "strange_leaves"])
def test_an_entry_point_that_does_not_import_is_named_with_its_distribution(folder: Path, module: str) -> None:
    entry_points(folder, "one", f"mine = {module}:Mine\n")
    with pytest.raises(PluginError, match=f"'mine' stands for {module}:Mine from one, which failed to import"):
        load_plugin("strange.plugins", "mine")


class Tuned:
    def __init__(self, eta: int = 4, rungs: int = 5) -> None:
        self.both = (eta, rungs)


class Open(Tuned):
    def __init__(self, **rest: int) -> None:
        super().__init__(**rest)


def test_a_parameter_that_a_class_does_not_take_is_named_with_the_one_that_may_be_meant() -> None:
    assert unknown_parameters(Tuned, ["eta", "rungs"]) == ""
    assert unknown_parameters(Tuned, ["Eta"]) == "has no parameter Eta; it takes: eta, rungs; did you mean eta?"
    assert unknown_parameters(Tuned, ["speed"]) == "has no parameter speed; it takes: eta, rungs"
    assert unknown_parameters(Tuned, ["eta", "rungs"], own=["eta"]) == "has no parameter eta; it takes: rungs"


def test_a_class_that_takes_the_rest_says_for_itself_what_is_wrong() -> None:
    assert unknown_parameters(Open, ["Eta"]) == ""
