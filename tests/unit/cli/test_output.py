"""Tests of the output of commands: JSON, errors on one line, arguments, and modules imported at start."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from hopyard.cli.app import load_command
from hopyard.cli.connect import choose, where
from hopyard.cli.errors import WrongUse, explain
from hopyard.cli.main import run
from hopyard.cli.options import experiment_and_job
from hopyard.cli.output import emit, plain, show
from hopyard.cli.tables import nodes_table
from hopyard.client.types import Job, JobState, Node, NodeState, Slot
from hopyard.errors import Conflict, Internal, InvalidInput, NotFound
from hopyard.spec import SpecError, load_spec

pytestmark = pytest.mark.quick


def test_plain_makes_json_of_results() -> None:
    job = Job("e", "1", JobState.RUNNING, hyperparameters={"lr": math.inf, "layers": (1, 2)}, best_value=math.nan)
    found = json.loads(json.dumps(plain({"job": job, "at": Path("x")}), allow_nan=False))
    assert found["job"]["state"] == "RUNNING"
    assert found["job"]["best_value"] is None
    assert found["job"]["hyperparameters"] == {"lr": None, "layers": [1, 2]}
    assert found["at"] == "x"


@pytest.mark.parametrize("stderr", [False, True])
def test_control_characters_in_renderables_are_escaped(capsys: pytest.CaptureFixture[str], stderr: bool) -> None:
    node = Node("../\0\x1b[31m\x9b", "", NodeState.UP, (Slot("n\x07/0", "n"),), reason="\x1b]0;title")
    show(nodes_table([node]), stderr=stderr)
    show(Text("two\nlines \x1b[2J", style="bold"), stderr=stderr)
    captured = capsys.readouterr()
    lines = (captured.err if stderr else captured.out).splitlines()
    assert lines[1].startswith("../\\x00\\x1b[31m\\x9b")
    assert [line.strip() for line in lines[-3:]] == [r"../\x00\x1b[31m\x9b  \x1b]0;title", "two", r"lines \x1b[2J"]


@pytest.mark.parametrize(
    ("error", "code", "expected"),
    [
        (InvalidInput("mend it"), 2, "mend it"),
        (WrongUse("not so"), 2, "not so"),
        (NotFound("nobody"), 1, "nobody"),
        (Conflict("not now"), 1, "not now"),
        (Internal("oops"), 1, "oops (a bug in Hopyard"),
        (OSError("disk full"), 1, "disk full"),
        (ZeroDivisionError("x"), 1, "a bug in Hopyard: ZeroDivisionError: x"),
    ],
)
def test_errors_have_a_line_and_a_code(error: Exception, code: int, expected: str) -> None:
    text, found = explain(error)
    assert text.startswith(expected)
    assert found == code


def test_each_mistake_of_a_specification_is_shown() -> None:
    with pytest.raises(SpecError) as caught:
        load_spec("name: x\nmetric: {name: a, mode: most}\nspace: 3\n", "file.yaml")
    text, code = explain(caught.value)
    assert code == 2
    assert text.count("file.yaml:") >= 2


def test_names_of_experiment_and_job() -> None:
    assert experiment_and_job(["7"]) == (None, "7")
    assert experiment_and_job(["digits", "7"]) == ("digits", "7")
    with pytest.raises(WrongUse, match="found 3 names"):
        experiment_and_job(["a", "b", "c"])


def test_what_was_typed_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPYARD_SERVER", "host:1")
    assert choose("host:1", Path("d")) == (None, Path("d"))
    monkeypatch.delenv("HOPYARD_SERVER")
    monkeypatch.setenv("HOPYARD_DATA", "d")
    assert choose("host:1", Path("d"))[0] == "host:1"
    with pytest.raises(WrongUse, match="cannot be given together"):
        choose("host:1", Path("other"))
    assert choose(None, None) == (None, Path("hopyard-data"))


def test_the_next_command_is_told_what_this_one_was(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HOPYARD_SERVER", "HOPYARD_DATA"):
        monkeypatch.delenv(variable, raising=False)
    assert where(None, None) == ""
    assert where("host:1", None) == " --server host:1"
    assert where(None, Path("my data")) == " --data 'my data'"
    monkeypatch.setenv("HOPYARD_DATA", "d")
    assert where(None, Path("d")) == ""
    monkeypatch.setenv("HOPYARD_SERVER", "host:1")
    assert where("host:1", None) == ""


def test_nothing_is_cut_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("address", box=None)
    table.add_row("x" * 300)
    emit(table)
    assert "x" * 300 in capsys.readouterr().out


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WrongUse, match=r"hopyard scheduler is not installed: pip install .*\[scheduler\]'"):
        load_command("scheduler", None)
    missing = EntryPoint("agent", "module_that_needs_more:command", "hopyard.commands")
    with pytest.raises(WrongUse, match=r"hopyard agent needs: pip install .*\[agent\]'.* \(no module module_that"):
        load_command("agent", missing)


@pytest.mark.merge
@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["run", "--help"], ["curve", "--help"], ["up", "--help"]])
def test_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 0
    assert "Usage: hopyard" in capsys.readouterr().out


@pytest.mark.parametrize("service", ["scheduler", "agent", "appstat", "hpgen"])
def test_services_share_their_common_options(service: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([service, "--help"]) == 0
    out = capsys.readouterr().out
    for option in ("--data", "--host", "--port", "--insecure", "--log-format", "--log-level"):
        assert f"{option} " in out, option
    assert "-completion" not in out
    assert "--no-insecure" not in out


def test_every_command_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    run(["--help"])
    out = capsys.readouterr().out
    for name in (
        *(
            "run",
            "resume",
            "up",
            "scheduler",
            "agent",
            "appstat",
            "hpgen",
            "experiments",
            "jobs",
            "nodes",
            "best",
            "curve",
        ),
        *("logs", "wait", "download", "pause", "stop", "extend"),
    ):
        assert f" {name} " in out


@pytest.mark.parametrize("arguments", [["frobnicate"], ["run"], ["run", "x", "--slots", "0"], ["jobs", "--nothing"]])
def test_wrong_use_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert capsys.readouterr().out == ""


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("hopyard ")


@pytest.mark.merge
def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom hopyard.cli.main import run\nrun(['--help'])\n"
        "heavy = {'grpc', 'pydantic', 'numpy', 'torch', 'yaml', 'google.protobuf'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
