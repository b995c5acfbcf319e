"""The command `hopyard hpgen`, which runs the hyperparameter generator service."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from hopyard._common.environment import check_patterns, restrict_environment
from hopyard._net.server import LogFormat, run_service
from hopyard._net.server.addresses import tcp_port
from hopyard_hpgen.host import DEFAULT_SECONDS
from hopyard_hpgen.service import HpgenService


def command(
    host: Annotated[
        str | None,
        typer.Option(
            help="Address of a TCP port to listen on, at which other computers reach this one; default: a Unix socket in --data, "
            "which only you can use.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="TCP port, with --host; 0 selects a free one; default: 4653.", show_default=False
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder for the file hpgen.address, which contains the service's address.")
    ] = None,
    time_limit: Annotated[
        float, typer.Option(min=0.1, help="Maximum seconds of a call of a generator; a longer call has failed.")
    ] = DEFAULT_SECONDS,
    pass_env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Environment variable that generators get, in addition to the usual ones. "
            "Repeat it for several; * stands for any characters.",
            show_default=False,
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow --host without encryption, on a network whose users you trust.")
    ] = False,
    log_format: Annotated[LogFormat, typer.Option(help="Format of log lines.")] = LogFormat.TEXT,
    log_level: Annotated[str, typer.Option(help="Minimum level of logged messages.")] = "INFO",
) -> None:
    """Run the hyperparameter generator service: it proposes configurations.

    It stores nothing: after a restart the scheduler opens its generators again from the journal.
    """
    restrict_environment(check_patterns(pass_env or ()))  # Generators run in this process.

    async def main(stop: asyncio.Event) -> None:
        await HpgenService(
            host=host, port=tcp_port(host, port, 4653), data=data, insecure=insecure, seconds=time_limit
        ).run(stop)

    raise typer.Exit(run_service(main, name="hpgen", log_format=log_format, log_level=log_level))
