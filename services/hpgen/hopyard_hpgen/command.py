"""The command `hopyard hpgen`, which runs the hyperparameter generator service."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from hopyard._common.environment import check_patterns, restrict_environment
from hopyard._net.server import LogFormat, run_service
from hopyard._net.server.addresses import tcp_port
from hopyard._net.server.command_options import Host, Insecure, port_option
from hopyard_hpgen.host import DEFAULT_SECONDS
from hopyard_hpgen.service import HpgenService


def command(
    host: Host = None,
    port: Annotated[int | None, port_option("4653")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder for the file hpgen.address, which contains the service's address.")
    ] = None,
    time_limit: Annotated[
        float, typer.Option(min=0.1, help="Maximum seconds of a call of a generator; a longer call has failed.")
    ] = DEFAULT_SECONDS,
    generator_memory: Annotated[
        str,
        typer.Option(
            metavar="BYTES",
            help="Memory limit of a process with a generator of a third party, with its child processes: 500MB; none: no limit.",
        ),
    ] = "2GiB",
    pass_env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Environment variable that generators get, in addition to the usual ones. "
            "Repeat it for several; * stands for any characters.",
            show_default=False,
        ),
    ] = None,
    insecure: Insecure = False,
    log_format: Annotated[LogFormat, typer.Option(help="Format of log lines.")] = LogFormat.TEXT,
    log_level: Annotated[str, typer.Option(help="Minimum level of logged messages.")] = "INFO",
) -> None:
    """Run the hyperparameter generator service: it proposes configurations.

    It stores nothing: after a restart the scheduler opens its generators again from the journal.
    """
    # Generators run in this process and in its children.
    restrict_environment(check_patterns(pass_env or ()))

    async def main(stop: asyncio.Event) -> None:
        from hopyard.spec.units import option_bytes  # The import is slow.

        await HpgenService(
            host=host,
            port=tcp_port(host, port, 4653),
            data=data,
            insecure=insecure,
            seconds=time_limit,
            generator_memory=option_bytes("--generator-memory", generator_memory),
        ).run(stop)

    raise typer.Exit(run_service(main, name="hpgen", log_format=log_format, log_level=log_level))
