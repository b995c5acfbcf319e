"""Options that the commands of all services have: where the service listens."""

from __future__ import annotations

from typing import Annotated, Any

import typer

Host = Annotated[
    str | None,
    typer.Option(
        help="Address of a TCP port to listen on, by which other computers reach this one; default: a Unix socket in --data, "
        "which only you can use.",
        show_default=False,
    ),
]
"""The option --host."""

Insecure = Annotated[
    bool, typer.Option("--insecure", help="Allow --host without encryption, on a network whose users you trust.")
]
"""The option --insecure."""


def port_option(default: str) -> Any:
    """Return the option --port.

    Args:
        default: The default port in the help text, such as "4650".
    """
    return typer.Option(
        min=0, max=65535, help=f"TCP port, with --host; 0 selects a free one; default: {default}.", show_default=False
    )
