"""Tests of `hopyard plot` on files, and of the requests that it refuses before it connects to a cluster."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import get_args

import pytest

from hopyard.cli.commands.inspect.plot import Kind
from hopyard.cli.main import run
from hopyard.plots import KINDS
from tests.unit.plots.given import result

pytestmark = pytest.mark.quick


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "results.json"
    path.write_text(json.dumps([result("pop", jobs=8, slots=slots) for slots in (2, 4)]))
    return path


def test_the_command_knows_all_kinds() -> None:
    assert set(get_args(Kind)) == set(KINDS)


@pytest.mark.merge
def test_a_plot_is_written_and_named(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to = tmp_path / "capacity.svg"
    assert run(["plot", str(results), "-o", str(to)]) == 0
    assert capsys.readouterr().out == f"{to}\n"
    assert to.read_text().startswith("<?xml")


@pytest.mark.merge
def test_json_is_what_is_shown(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plot", str(results), "--kind", "durations", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["to"]) == ("durations", None)
    assert len(document["shows"]["policies"][0]["durations"]) == 16
    png = tmp_path / "it.png"
    assert run(["plot", str(results), str(results), "--json", "-o", str(png)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["to"]) == ("capacity", str(png))
    assert png.read_bytes().startswith(b"\x89PNG")


@pytest.mark.merge
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["{}"], "error: name the output: -o FILE.svg or FILE.png, or --json"),
        (["{}", "-o", "x.pdf"], "error: x.pdf: a plot's name ends in .svg or .png, and this one ends in .pdf"),
        (["{}", "-o", "x"], "error: x: a plot's name ends in .svg or .png, and this one ends in neither"),
        (["{}", "-o", "{}/x.svg"], "error: a plot cannot be written to {}/x.svg: "),
        (["{}", "--kind", "curves", "--json"], "error: --kind curves shows one search, and here are 2: "),
        (["{}", "--kind", "orders", "--json"], "error: {}, entry 1: --kind orders compares orders"),
        (["{}", "--over", "time", "--json"], "error: --over goes with --kind curves, durations; capacity "),
    ],
)
def test_wrong_use_is_one_line(
    arguments: list[str], told: str, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plot", *(one.format(results) for one in arguments)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(told.format(results))


def test_what_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plot", "nothing.json", "--json"]) == 1
    assert capsys.readouterr().err == "error: nothing.json: there is no such file\n"
    assert run(["plot", "digits", "--json", "--data", str(tmp_path / "none")]) == 1
    assert "no cluster has run here" in capsys.readouterr().err


def test_without_matplotlib_it_says_what_to_install(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run(["plot", str(results), "-o", str(tmp_path / "x.svg")]) == 1
    error = capsys.readouterr().err
    assert "pip install " in error
    assert "[plot]'" in error
    assert run(["plot", str(results), "--json"]) == 0
