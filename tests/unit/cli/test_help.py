"""Tests of the help of every command: its line, its example, and its option `--json`."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.core import TyperCommand, TyperGroup

from hopyard._common.plugins import COMMANDS, plugin_names
from hopyard.cli.app import MODULES, build, load_command
from hopyard.cli.commands.plugins.descriptions import PANELS
from hopyard.cli.main import run

SERVICES = ("scheduler", "agent", "appstat", "hpgen")
SILENT = {"run", "logs", "up", "policy serve", *SERVICES}
"""Commands without `--json`: they stream their output, or serve."""


def commands() -> dict[str, TyperCommand]:
    """Return all commands by name; the commands of services are loaded, not only announced."""
    from importlib.metadata import entry_points

    group = build([])
    assert isinstance(group, TyperGroup)
    found = dict(group.commands)
    for name in plugin_names(COMMANDS):
        (entry,) = entry_points(group=COMMANDS, name=name)
        found[name] = load_command(name, entry)  # type: ignore[assignment]
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("width", ["80", "120"])
def test_the_help_has_a_line_for_each(
    width: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    assert run(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= int(width)
    names = commands()
    for name in names:
        (line,) = [line for line in lines if line.startswith(f"│ {name} ")]
        assert line.rstrip("│ ").endswith("."), f"{name}: its line is longer than one"
    for panel in ("Set up", "Train", "Look", "Act", "Services"):
        assert any(line.startswith(f"╭─ {panel} ─") for line in lines), panel


def leaves() -> dict[str, TyperCommand]:
    """Return all commands without subcommands by full name, such as `data split`."""
    found = {}
    for name, command in commands().items():
        below = command.commands if isinstance(command, TyperGroup) else {"": command}
        found.update({f"{name} {one}".strip(): leaf for one, leaf in below.items()})
    return found  # type: ignore[return-value]


def test_every_command_has_an_example() -> None:
    for name, command in {**commands(), **leaves()}.items():
        if name not in SERVICES:
            assert "**Example" in (command.help or ""), name


def test_every_command_that_answers_has_json() -> None:
    for name, command in leaves().items():
        options = {flag for parameter in command.params for flag in parameter.opts}
        assert "--json" in options or name in SILENT, name


def test_the_built_in_commands_of_services_have_their_place() -> None:
    assert set(plugin_names(COMMANDS)) <= set(PANELS)


def test_help_imports_no_service() -> None:
    code = (
        "import sys; from hopyard.cli.main import run; run(['--help']); "
        "print([m for m in sys.modules if m.startswith('hopyard_') or m in ('grpc', 'torch', 'pydantic')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=150)
    assert done.stdout.splitlines()[-1] == "[]"


def test_each_command_is_built_without_the_others() -> None:
    modules = {name: names for names in MODULES.values() for name in names}
    for name in commands():
        group = build([name, "--json"])
        assert isinstance(group, TyperGroup)
        assert tuple(group.commands) == modules.get(name, (name,))


def test_a_query_of_a_running_cluster_imports_only_what_it_needs() -> None:
    code = (
        "import sys; from hopyard.cli.app import build; build(['experiments']); import hopyard.cli.connect; "
        "wanted = ('sqlalchemy', 'pydantic', 'yaml', 'numpy', 'rich.table', 'tarfile', 'importlib.metadata', 'hopyard.spec', "
        "'hopyard.space', 'hopyard.cli.live', 'hopyard.cli.commands.cluster', 'hopyard.client.local_cluster.embedded'); "
        "print([m for m in wanted if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=150)
    assert done.stdout.splitlines()[-1] == "[]"
