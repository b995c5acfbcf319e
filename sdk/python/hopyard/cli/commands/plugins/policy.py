"""The command `policy serve`: runs a policy in its own process."""

from __future__ import annotations

from typing import Annotated

import typer

from hopyard.cli.options import APP_SETTINGS, Data, Server

_NAME = "HOPYARD_POLICY"


_HELP = """Run policies in their own processes.

A policy in its own process connects to the cluster; an experiment file names it as `policy: remote:NAME`.

**Example:** `hopyard policy serve mine:Mine --name mine`
"""


def register(app: typer.Typer) -> None:
    """Add the command group `policy` to the command line `app`."""
    group = typer.Typer(help=_HELP, no_args_is_help=True, **APP_SETTINGS)
    group.command()(serve)
    app.add_typer(group, name="policy", rich_help_panel="Services")


def serve(
    policy: Annotated[
        str, typer.Argument(metavar="POLICY", help="A policy's name (see `hopyard plugins`) or module:Class.")
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="Name in experiment files (`policy: remote:NAME`). [default: the policy's name, or the class's]",
            envvar=_NAME,
            show_default=False,
        ),
    ] = None,
    server: Server = None,
    data: Data = None,
) -> None:
    """Run a policy in its own process.

    It connects to the cluster, serves every experiment with `policy: remote:NAME`, and reconnects when the connection
    is lost or the cluster restarts. Parameters come from the experiments. Ctrl-C ends it: its experiments are paused if
    no other process serves the policy, and continue after `hopyard resume`.

    **Examples:** `hopyard policy serve mine:Mine --server 127.0.0.1:4650`, `hopyard policy serve bandit --name
    my-bandit`
    """
    import logging
    import os
    import signal
    import sys

    from hopyard._net.auth import CallerKind, find_token
    from hopyard._net.server.logs import set_up_logging
    from hopyard._net.server.main_loop import SWITCH_SECONDS
    from hopyard._runtime.policy_process.server import PolicyServer
    from hopyard.cli.connect import choose
    from hopyard.cli.output import say
    from hopyard.client.address import find_server
    from hopyard.policy.factory import new_policy, policy_class

    address, folder = choose(server, data)
    policy_class(policy)
    called = name or policy.rpartition(":")[2]
    set_up_logging("policy")
    logging.getLogger("hopyard").setLevel(logging.INFO)
    sys.setswitchinterval(SWITCH_SECONDS)

    # A scheduler that started this process has set the variable. Child processes must not get it.
    own = os.environ.pop("HOPYARD_POLICY_TOKEN", None)

    def where() -> tuple[str, str]:
        found = find_server(address, None if address is not None else folder)
        return found.address, own or find_token(CallerKind.USER, found.address, found.data)

    serving = PolicyServer(called, lambda parameters: new_policy(policy, parameters), where)
    serving.stop_on(signal.SIGINT, signal.SIGTERM)
    say(f"serving {policy} to experiments with  policy: remote:{called}  (Ctrl-C ends it)")
    serving.run()
