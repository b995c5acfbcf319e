"""Builds the command line `hopyard` from the built-in commands, the services and the commands of other distributions."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from hopyard.cli.errors import WrongUse
from hopyard.cli.options import APP_SETTINGS
from hopyard.cli.parameters import convert_directly
from hopyard.cli.suggestions import CommandGroup

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_HELP = """A cluster for exploring hyperparameters: policies decide during training which jobs run, wait, fork and end.

**A first search**, on this computer:

    hopyard init train.py            # writes experiment.yaml for your script
    hopyard run experiment.yaml      # live view; Ctrl-C suspends
    hopyard resume                   # continues
    hopyard best                     # the best hyperparameters
    hopyard download -o best         # what they trained

**A permanent cluster**: `hopyard up --data DIR`, then `hopyard run FILE --data DIR` in another terminal.

Commands find their cluster by --server, --data, $HOPYARD_SERVER, $HOPYARD_DATA, or in ./hopyard-data. An experiment is named
by its id or name; the default is the newest. Exit codes: 0 done, 1 failed, 2 wrong use, 130 interrupted
(129 by SIGHUP, 141 by a closed output).
"""

MODULES: Final = {
    "experiments.init": ("init",),
    "experiments.run": ("run", "resume"),
    "inspect.queries": ("experiments", "jobs", "best", "curve", "nodes"),
    "experiments.plan": ("plan",),
    "inspect.plot": ("plot",),
    "inspect.results": ("results",),
    "inspect.trace": ("trace",),
    "inspect.files": ("logs", "download"),
    "experiments.actions": ("pause", "stop", "extend", "retry", "resend", "wait"),
    "experiments.settings": ("set",),
    "experiments.removal": ("rm",),
    "experiments.export_import": ("export", "import"),
    "cluster.data": ("data",),
    "cluster.nodes": ("drain", "undrain", "forget"),
    "cluster.garbage": ("gc",),
    "cluster.backup": ("restore", "backup"),
    "cluster.connection": ("connection",),
    "plugins.catalog": ("plugins",),
    "plugins.policy": ("policy",),
    "plugins.conformance": ("conformance",),
    "cluster.doctor": ("doctor",),
    "cluster.up": ("up",),
}
"""The modules in `hopyard.cli.commands`, in the order of `hopyard --help`, each with the commands that its `register` adds."""

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
        arguments: The arguments that will be parsed. If they name a built-in command, only its module is imported. Commands of other
            distributions are looked up only if they do not.
    """
    app = typer.Typer(
        name="hopyard",
        cls=CommandGroup,
        help=_HELP,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        **APP_SETTINGS,
    )
    app.callback()(_options)
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    if wanted is None or _COMPLETING in os.environ or not _add_alone(app, wanted):
        for module in MODULES:
            import_module(f"hopyard.cli.commands.{module}").register(app)
        _add_services(app)
    command = _get_command(app)
    if _COMPLETING in os.environ and isinstance(command, TyperGroup):
        _know_options(command)
    return command


def _get_command(app: typer.Typer) -> Callable[..., Any]:
    command = typer.main.get_command(app)
    convert_directly(command)
    return command


def _add_alone(app: typer.Typer, wanted: str) -> bool:
    """Add only the command `wanted` to `app`, and return whether it exists; if not, nothing is added.

    This saves time: importing the modules of all commands takes longer than many commands run.
    """
    for module, names in MODULES.items():
        if wanted in names:
            import_module(f"hopyard.cli.commands.{module}").register(app)
            return True
    if wanted in _SERVICE_HELP or entry_point(wanted) is not None:
        _add_service(app, wanted)
        return True
    return False


def _add_services(app: typer.Typer) -> None:
    """Add the commands that run a service (such as `scheduler`), and those that other installed distributions provide.

    A command of another distribution is left out if its name is taken.
    """
    from importlib.metadata import entry_points

    from hopyard._common.plugins import COMMANDS
    from hopyard.cli.commands.plugins import descriptions

    for name, text in _SERVICE_HELP.items():
        _add_service(app, name, text, descriptions.PANELS[name])
    known = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    for entry in entry_points(group=COMMANDS):
        if entry.name not in known:
            known.add(entry.name)
            panel = descriptions.PANELS.get(entry.name, descriptions.OTHERS)
            _add_service(app, entry.name, descriptions.describe(entry), panel)


def entry_point(name: str) -> EntryPoint | None:
    """Return the entry point of the command `name` that an installed distribution provides, or None if there is none."""
    # Built-in commands need no entry points, and importing their library takes long.
    from importlib.metadata import entry_points

    from hopyard._common.plugins import COMMANDS

    return next(iter(entry_points(group=COMMANDS, name=name)), None)


def _know_options(group: TyperGroup) -> None:
    """Add a command of another distribution to `group` during shell completion, so that its options are offered.

    The command is the first word of the unfinished command line, which the shell passes in an environment variable. Nothing is
    added if no distribution registers this command, or if it cannot be loaded.
    """
    words = os.environ.get("COMP_WORDS", os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()[1:]
    name = next((word for word in words if not word.startswith("-")), "")
    found = entry_point(name) if name else None
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
    from hopyard._common.extras import install_command

    extra = EXTRAS.get(name)
    if found is None:
        raise WrongUse(f"hopyard {name} is not installed" + (f": {install_command(extra)}" if extra else ""))
    try:
        loaded: Any = found.load()
    except ModuleNotFoundError as error:
        if extra is None or str(error.name).startswith("hopyard"):
            raise
        raise WrongUse(f"hopyard {name} needs: {install_command(extra)} (no module {error.name})") from error
    if isinstance(loaded, typer.Typer):
        command: Callable[..., Any] = _get_command(loaded)
    elif callable(loaded) and not hasattr(loaded, "make_context"):
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, **APP_SETTINGS)
        app.command(name)(loaded)
        command = _get_command(app)
    else:
        command = loaded
    return command


def _add_service(app: typer.Typer, name: str, text: str | None = None, panel: str | None = None) -> None:
    def start(context: typer.Context) -> None:
        command = load_command(name, entry_point(name))
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
