"""`hopyard scheduler`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from hopyard._net.server import LogFormat, run_service
from hopyard.errors import InvalidInput
from hopyard_scheduler.runtime.runtime import DEFAULT_POLICY_SECONDS
from hopyard_scheduler.service import (
    DEFAULT_ABSENCE_SECONDS,
    DEFAULT_HEARTBEAT_SECONDS,
    DEFAULT_LEASE_SECONDS,
    SchedulerService,
)

MIN_SECONDS = 0.1
MAX_SECONDS = 86400.0


def command(
    appstat: Annotated[str, typer.Option(help="Address of the AppStat service, HOST:PORT.")],
    hpgen: Annotated[str, typer.Option(help="Address of the generator service, HOST:PORT.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder in which scheduler.address tells other services where it listens.")
    ] = None,
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 4650,
    lease: Annotated[
        float, typer.Option(help="Seconds after which a silent agent loses its runs.")
    ] = DEFAULT_LEASE_SECONDS,
    heartbeat: Annotated[float, typer.Option(help="Seconds between signs of life.")] = DEFAULT_HEARTBEAT_SECONDS,
    policy_time_limit: Annotated[
        float,
        typer.Option(
            min=0.1, help="Seconds that a policy in a process may take over an up-call before its experiment is paused."
        ),
    ] = DEFAULT_POLICY_SECONDS,
    policy_absence_limit: Annotated[
        float,
        typer.Option(
            min=0.1,
            help="Seconds that the process of a policy may be away when it is needed, before its experiment is paused.",
        ),
    ] = DEFAULT_ABSENCE_SECONDS,
    store_quota: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="What the snapshots of all experiments together may take in the store, such as 500GiB; those that are the "
            "quickest to train again make room. It is remembered; none takes it away.",
            show_default=False,
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond this machine without encryption, on a network you trust.")
    ] = False,
    log_format: Annotated[LogFormat, typer.Option(help="How log lines look.")] = LogFormat.TEXT,
    log_level: Annotated[str, typer.Option(help="Least severe level that is logged.")] = "INFO",
) -> None:
    """Run the scheduler: experiments, jobs, slots and the agents' sessions.

    It recovers every unfinished experiment from AppStat's journal and may be started before, after or together with the
    other services.
    """

    async def main(stop: asyncio.Event) -> None:
        check_times(lease, heartbeat)
        quota = _quota_of(store_quota)
        service = SchedulerService(
            appstat=appstat,
            hpgen=hpgen,
            host=host,
            port=port,
            data=data,
            insecure=insecure,
            lease_seconds=lease,
            heartbeat_seconds=heartbeat,
            policy_seconds=policy_time_limit,
            absence_seconds=policy_absence_limit,
            store_quota=quota,
        )
        starting, stopping = asyncio.create_task(service.start()), asyncio.create_task(stop.wait())
        try:
            # It may wait for AppStat for ever.
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                await starting
                await service.wait(stop)
        finally:
            for task in (starting, stopping):
                task.cancel()
            await asyncio.wait((starting, stopping))
            await service.stop()

    raise typer.Exit(run_service(main, name="scheduler", log_format=log_format, log_level=log_level))


def _quota_of(given: str | None) -> int | None:
    if given is None:
        return None
    from hopyard.spec.units import size_or_none  # Its package takes a while to import.

    try:
        return size_or_none(given)
    except ValueError as error:
        raise InvalidInput(f"--store-quota: {error}") from error


def check_times(lease: float, heartbeat: float) -> None:
    """Refuse times with which agents that live would be declared lost.

    Raises:
        InvalidInput: One is out of its range, or an agent would not be heard twice within its lease.
    """
    for option, seconds in (("--lease", lease), ("--heartbeat", heartbeat)):
        if not MIN_SECONDS <= seconds <= MAX_SECONDS:
            raise InvalidInput(f"{option}: needs {MIN_SECONDS:g} to {MAX_SECONDS:g} seconds, found {seconds:g}")
    if not heartbeat < lease / 2:
        raise InvalidInput(f"--heartbeat: needs less than half of --lease ({lease:g} s), found {heartbeat:g} s")
