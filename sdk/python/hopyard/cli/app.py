"""Builds the command line `hopyard` from the built-in commands, the services and the commands of other distributions."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from hopyard._common.plugins import COMMANDS
from hopyard.cli import plugin_commands
from hopyard.cli.commands.cluster import data, doctor, garbage, up
from hopyard.cli.commands.experiments import actions, export_import, init, plan, run, settings
from hopyard.cli.commands.inspect import files, plot, queries, results, trace
from hopyard.cli.commands.plugins import catalog, conformance, policy
from hopyard.cli.errors import WrongUse
from hopyard.cli.options import LOOKS

_HELP = """A cluster for exploring hyperparameters: policies decide during training which jobs run, wait, fork and end.

**A first search**, on this computer:

    hopyard init train.py            # writes experiment.yaml for your script
    hopyard run experiment.yaml      # live view; Ctrl-C suspends
    hopyard resume                   # continues
    hopyard best                     # the best hyperparameters
    hopyard download -o best         # what they trained

**A permanent cluster**: `hopyard up` here, then `hopyard run FILE --server HOST:PORT` from anywhere.

Commands find their cluster by --server, --data, $HOPYARD_SERVER, $HOPYARD_DATA, or in ./hopyard-data. An experiment is named
by its id or name; the default is the newest. Exit codes: 0 done, 1 failed, 2 wrong use, 130 interrupted.
"""

# The extra that installs each command, for the message if it is missing.
EXTRAS: Final = {"scheduler": "scheduler", "agent": "agent", "appstat": "appstat", "hpgen": "hpgen"}
_SERVICE_HELP: Final = {
    "scheduler": "Run the scheduler: it assigns slots to jobs.",
    "agent": "Run a node agent: it adds this computer to a cluster.",
    "appstat": "Run AppStat: the journal, statistics and snapshots.",
    "hpgen": "Run the hyperparameter generator: it proposes configurations.",
}
_COMPLETING: Final = "_HOPYARD_COMPLETE"
# The service parses its own options and arguments.
_PASS_ON: Final = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}


def build(arguments: list[str]) -> Callable[..., Any]:
    """Build the command line, as a callable that parses and runs a list of arguments (a click command).

    Args:
        arguments: The arguments that will be parsed. Commands of other distributions are looked up only if the arguments do
            not name a built-in command.
    """
    app = typer.Typer(
        name="hopyard",
        help=_HELP,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        **LOOKS,
    )
    app.callback()(_options)
    for module in (
        init,
        run,
        queries,
        plan,
        plot,
        results,
        trace,
        files,
        actions,
        settings,
        export_import,
        data,
        garbage,
        catalog,
        policy,
        conformance,
        doctor,
        up,
    ):
        module.register(app)
    for name, text in _SERVICE_HELP.items():
        _add_service(app, name, text, plugin_commands.PANELS[name])
    known = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    if wanted is None or wanted not in known:
        for entry in entry_points(group=COMMANDS):
            if entry.name not in known:
                known.add(entry.name)
                _add_service(
                    app,
                    entry.name,
                    plugin_commands.told(entry),
                    plugin_commands.PANELS.get(entry.name, plugin_commands.OTHERS),
                )
    command = typer.main.get_command(app)
    if _COMPLETING in os.environ and isinstance(command, TyperGroup):
        _know_options(command)
    return command


def _know_options(group: TyperGroup) -> None:
    """Add a command of another distribution to `group` during shell completion, so that its options are offered.

    The command is the first word of the unfinished command line, which the shell passes in an environment variable. Nothing is
    added if no distribution registers this command, or if it cannot be loaded.
    """
    words = os.environ.get("COMP_WORDS", os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()[1:]
    name = next((word for word in words if not word.startswith("-")), "")
    found = next(iter(entry_points(group=COMMANDS, name=name)), None) if name else None
    if found is not None:
        with suppress(Exception):
            loaded = load_command(name, found)
            if isinstance(loaded, TyperCommand | TyperGroup):
                group.commands[name] = loaded


def load_command(name: str, found: EntryPoint | None) -> Callable[..., Any]:
    """Load a command that an installed distribution registered as an entry point.

    Args:
        name: Name of the command.
        found: The entry point; None: no distribution registers the command.

    Returns:
        The command, which parses and runs a list of arguments.

    Raises:
        WrongUse: The command or one of its dependencies is not installed. The message says what to install.
    """
    extra = EXTRAS.get(name)
    if found is None:
        raise WrongUse(f"hopyard {name} is not installed" + (f": pip install 'hopyard[{extra}]'" if extra else ""))
    try:
        loaded: Any = found.load()
    except ModuleNotFoundError as error:
        if extra is None or str(error.name).startswith("hopyard"):
            raise
        raise WrongUse(f"hopyard {name} needs: pip install 'hopyard[{extra}]' (no module {error.name})") from error
    if isinstance(loaded, typer.Typer):
        command: Callable[..., Any] = typer.main.get_command(loaded)
    elif callable(loaded) and not hasattr(loaded, "make_context"):
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, **LOOKS)
        app.command(name)(loaded)
        command = typer.main.get_command(app)
    else:
        command = loaded
    return command


def _add_service(app: typer.Typer, name: str, text: str, panel: str) -> None:
    def start(context: typer.Context) -> None:
        found = next(iter(entry_points(group=COMMANDS, name=name)), None)
        command = load_command(name, found)
        raise typer.Exit(_exit_code(command(args=context.args, prog_name=f"hopyard {name}", standalone_mode=False)))

    app.command(
        name,
        help=text,
        rich_help_panel=panel,
        context_settings=_PASS_ON,
        add_help_option=False,
        no_args_is_help=False,
    )(start)


def _exit_code(given: object) -> int:
    return given if isinstance(given, int) else 0


def _print_version(wanted: bool) -> None:
    if wanted:
        from hopyard import __version__

        typer.echo(f"hopyard {__version__}")
        raise typer.Exit()


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Define the options of `hopyard` that are given before a command."""
