"""`hopyard scheduler`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from hopyard.serving import LogFormat, run_service
from hopyard_scheduler.service import DEFAULT_HEARTBEAT_SECONDS, DEFAULT_LEASE_SECONDS, SchedulerService


def command(
    appstat: Annotated[str, typer.Option(help="Address of the AppStat service, HOST:PORT.")],
    hpgen: Annotated[str, typer.Option(help="Address of the generator service, HOST:PORT.")],
    data: Annotated[Path | None, typer.Option(help="Folder for the address file scheduler.address.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; only loopback without --insecure.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 4650,
    lease: Annotated[
        float, typer.Option(help="Seconds after which a silent agent loses its runs.")
    ] = DEFAULT_LEASE_SECONDS,
    heartbeat: Annotated[float, typer.Option(help="Seconds between signs of life.")] = DEFAULT_HEARTBEAT_SECONDS,
    insecure: Annotated[bool, typer.Option(help="Listen beyond this machine without encryption.")] = False,
    log_format: Annotated[LogFormat, typer.Option(help="Format of the log on standard error.")] = LogFormat.TEXT,
) -> None:
    """Run the scheduler: experiments, jobs, machines and the agents' sessions.

    It recovers every unfinished experiment from AppStat's journal and may be started before, after or together with the
    other services.
    """

    async def main(stop: asyncio.Event) -> None:
        service = SchedulerService(
            appstat=appstat,
            hpgen=hpgen,
            host=host,
            port=port,
            data=data,
            insecure=insecure,
            lease_seconds=lease,
            heartbeat_seconds=heartbeat,
        )
        try:
            await service.start()
            await service.wait(stop)
        finally:
            await service.stop()

    sys.exit(run_service(main, name="scheduler", log_format=log_format))
