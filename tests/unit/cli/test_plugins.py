"""Tests of `hopyard plugins`: the plugins with their distributions and parameters, and the errors of plugins that cannot be loaded."""

from __future__ import annotations

import json
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from hopyard._common.plugins import COMMANDS, POLICIES
from hopyard.cli.commands.plugins import catalog as catalogs
from hopyard.cli.commands.plugins.catalog import described
from hopyard.cli.main import run

pytestmark = pytest.mark.quick


@pytest.fixture
def third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution of a third party with a valid policy, a policy that cannot be loaded, and an entry that is not a policy."""
    (tmp_path / "theirs.py").write_text(
        '"""Theirs."""\n'
        "from hopyard.policy import Policy\n"
        "class Lucky(Policy):\n"
        '    """Starts what comes first.\n\n    More of it.\n    """\n'
        "    def __init__(self, luck: float = 0.5, *, names=('a',), need: int) -> None: ...\n"
        "    def allocate_jobs(self, cluster) -> None: ...\n"
        "from hopyard.predictor import Predictor\n"
        "class Straight(Predictor):\n"
        '    """A line goes on."""\n'
        "    def __init__(self, width: float = 0.1, **rest) -> None: ...\n"
        "    def predict(self, question): ...\n"
        "def command() -> None:\n"
        '    """Tell a fortune.\n\n    At length.\n    """\n'
    )
    (tmp_path / "broken.py").write_text("import a_module_that_is_not_there\n")
    info = tmp_path / "theirs-2.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 2.1\n")
    (info / "entry_points.txt").write_text(
        "[hopyard.policies]\nlucky = theirs:Lucky\nbroken = broken:Policy\nnone = theirs:command\n"
        "[hopyard.predictors]\nstraight = theirs:Straight\nunlucky = theirs:Lucky\n"
        "[hopyard.commands]\nfortune = theirs:command\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("theirs", "broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.merge
def test_the_built_in_ones_are_listed_with_their_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plugins", "--json"]) == 0
    found = {(one["kind"], one["name"]): one for one in json.loads(capsys.readouterr().out)}
    assert {("policy", "default"), ("generator", "random"), ("generator", "grid"), ("command", "agent")} <= set(found)
    policy = found["policy", "default"]
    assert policy["distribution"] == "hopyard"
    assert policy["summary"].startswith("The default policy of HyperDrive")
    assert {"name": "epoch", "required": False, "default": 1, "annotation": "int"} in policy["parameters"]
    assert [one["name"] for one in found["generator", "grid"]["parameters"]] == ["shuffle", "points"]
    assert all(one["error"] == "" for one in found.values())


@pytest.mark.merge
def test_one_that_cannot_be_loaded_spoils_no_other(third_party: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plugins", "--json"]) == 1
    found = {(one["kind"], one["name"]): one for one in json.loads(capsys.readouterr().out)}
    lucky = found["policy", "lucky"]
    assert (lucky["distribution"], lucky["version"], lucky["value"]) == ("theirs", "2.1", "theirs:Lucky")
    assert (lucky["summary"], lucky["error"]) == ("Starts what comes first.", "")
    assert lucky["parameters"] == [
        {"name": "luck", "required": False, "default": 0.5, "annotation": "float"},
        {"name": "names", "required": False, "default": ["a"], "annotation": ""},
        {"name": "need", "required": True, "default": None, "annotation": "int"},
    ]
    assert "ModuleNotFoundError: No module named 'a_module_that_is_not_there'" in found["policy", "broken"]["error"]
    assert "must be a class derived from hopyard.policy.base.Policy" in found["policy", "none"]["error"]
    assert found["command", "fortune"]["summary"] == "Tell a fortune."
    straight = found["predictor", "straight"]
    assert (straight["summary"], straight["error"]) == ("A line goes on.", "")
    assert straight["parameters"] == [{"name": "width", "required": False, "default": 0.1, "annotation": "float"}]
    assert "is not derived from hopyard.predictor.base.Predictor" in found["predictor", "unlucky"]["error"]
    assert found["policy", "default"]["error"] == ""


@pytest.mark.merge
def test_one_in_full(third_party: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plugins", "straight"]) == 0
    assert capsys.readouterr().out.startswith(
        "straight  predictor from theirs 2.1, theirs:Straight\n\nA line goes on.\n"
    )
    assert run(["plugins", "lucky"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("lucky  policy from theirs 2.1, theirs:Lucky\n\nStarts what comes first.\n\nMore of it.\n")
    assert "need       required  int" in out
    assert run(["plugins", "broken"]) == 1
    assert (
        "cannot be loaded: ModuleNotFoundError: No module named 'a_module_that_is_not_there'" in capsys.readouterr().out
    )


def test_an_unknown_name_is_told_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plugins", "defalt"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: no plugin is called 'defalt' (did you mean default?); there are: ")
    assert {"bandit", "default", "grid", "random"} <= set(err.strip().partition("there are: ")[2].split(", "))


def test_a_name_that_two_claim_is_told_for_both(third_party: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (third_party / "theirs-2.1.dist-info" / "entry_points.txt").write_text(
        "[hopyard.policies]\ndefault = theirs:Lucky\n"
    )
    found = [one for one in catalogs.catalog("default") if one.kind == "policy"]
    assert [one.distribution for one in found] == ["hopyard", "theirs"]
    assert all("is claimed more than once" in one.error for one in found)


def test_help_tells_of_commands_without_importing_them(
    third_party: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    assert "Tell a fortune." in out
    assert "theirs" not in sys.modules
    assert "From hopyard." not in out


@pytest.mark.parametrize("value", ["gone.module:command", "theirs:gone", "theirs"])
def test_a_command_whose_words_cannot_be_read_says_whose_it_is(third_party: Path, value: str) -> None:
    from hopyard.cli.commands.plugins.descriptions import describe

    assert describe(EntryPoint("x", value, COMMANDS)) == "From another distribution."


def test_a_plugin_whose_class_is_odd_is_an_error_of_its_own(third_party: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(*_: object) -> object:
        raise RuntimeError("what a metaclass")

    monkeypatch.setattr(catalogs, "load_plugin", odd)
    found = described("policy", EntryPoint("x", "theirs:Lucky", POLICIES))
    assert found.error == "RuntimeError: what a metaclass"


@pytest.mark.merge
def test_a_reason_that_several_share_is_told_once(third_party: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = third_party / "theirs-2.1.dist-info" / "entry_points.txt"
    entries.write_text(entries.read_text().replace("none =", "broken2 = broken:Other\nnone ="))
    assert run(["plugins"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("cannot be loaded: ModuleNotFoundError") == 1
    assert out.count("cannot be loaded: as broken") == 1
