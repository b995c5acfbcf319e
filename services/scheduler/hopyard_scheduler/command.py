"""The command `hopyard scheduler`, which starts the scheduler service."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from hopyard._common.environment import check_patterns, restrict_environment
from hopyard._net.server import LogFormat, run_service
from hopyard._net.server.addresses import tcp_port
from hopyard._net.server.command_options import Host, Insecure, port_option
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
    appstat: Annotated[str, typer.Option(help="Address of the AppStat service.")],
    hpgen: Annotated[str, typer.Option(help="Address of the generator service.")],
    data: Annotated[
        Path | None,
        typer.Option(help="Folder for scheduler.address, from which other services read the address of the scheduler."),
    ] = None,
    host: Host = None,
    port: Annotated[int | None, port_option("4650")] = None,
    lease: Annotated[
        float, typer.Option(help="Seconds without a message after which a node counts as lost.")
    ] = DEFAULT_LEASE_SECONDS,
    heartbeat: Annotated[float, typer.Option(help="Seconds between heartbeats.")] = DEFAULT_HEARTBEAT_SECONDS,
    forget_lost: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Time after which a lost node leaves the list of nodes, unless it is drained."
        ),
    ] = "24h",
    policy_time_limit: Annotated[
        float,
        typer.Option(
            min=0.1, help="Seconds that a policy process may take for an up-call before its experiment is paused."
        ),
    ] = DEFAULT_POLICY_SECONDS,
    policy_absence_limit: Annotated[
        float,
        typer.Option(
            min=0.1,
            help="Seconds that a needed policy process may be absent before its experiment is paused.",
        ),
    ] = DEFAULT_ABSENCE_SECONDS,
    policy_memory: Annotated[
        str,
        typer.Option(
            metavar="BYTES",
            help="Memory limit of a policy process that the scheduler starts, with its child processes, such as 500MB; none: no limit.",
        ),
    ] = "2GiB",
    store_quota: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="Quota of the store for the snapshots of all experiments, such as 500GiB. Above it, snapshots that are "
            "the quickest to train again are deleted. The quota is stored; none removes it.",
            show_default=False,
        ),
    ] = None,
    keep_unknown: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Time for which a node keeps an unused snapshot that no experiment needs and of which the cluster has no record, such "
            "as after an older database was restored: 1d to 3650d. hopyard gc deletes it at once.",
        ),
    ] = "7d",
    pass_env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Environment variable of the scheduler that policy processes get, in addition to the usual ones. "
            "Repeat it for several; * stands for any characters.",
            show_default=False,
        ),
    ] = None,
    insecure: Insecure = False,
    log_format: Annotated[LogFormat, typer.Option(help="Format of log lines.")] = LogFormat.TEXT,
    log_level: Annotated[str, typer.Option(help="Minimum level of logged messages.")] = "INFO",
) -> None:
    """Run the scheduler: experiments, jobs, slots and the agents' sessions.

    It recovers all unfinished experiments from the journal in AppStat. The services can be started in any order.
    """
    # Policies and solvers run in this process and in its children.
    restrict_environment(check_patterns(pass_env or ()))

    async def main(stop: asyncio.Event) -> None:
        from hopyard.spec.units import KEEP_UNKNOWN, option_bytes, option_seconds  # The import is slow.

        check_times(lease, heartbeat)
        quota = option_bytes("--store-quota", store_quota) if store_quota is not None else None
        memory = option_bytes("--policy-memory", policy_memory)
        forget_seconds = option_seconds("--forget-lost", forget_lost)
        grace_seconds = option_seconds("--keep-unknown", keep_unknown, allowed=KEEP_UNKNOWN)
        service = SchedulerService(
            appstat=appstat,
            hpgen=hpgen,
            host=host,
            port=tcp_port(host, port, 4650),
            data=data,
            insecure=insecure,
            lease_seconds=lease,
            heartbeat_seconds=heartbeat,
            forget_seconds=forget_seconds,
            policy_seconds=policy_time_limit,
            absence_seconds=policy_absence_limit,
            policy_memory=memory,
            store_quota=quota,
            grace_seconds=grace_seconds,
        )
        starting, stopping = asyncio.create_task(service.start()), asyncio.create_task(stop.wait())
        try:
            # `start` may wait for AppStat without a limit.
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


def check_times(lease: float, heartbeat: float) -> None:
    """Raise InvalidInput unless both times are in the permitted range and the heartbeat interval is shorter than half the lease.

    Args:
        lease: Seconds without a message after which the scheduler considers a node lost.
        heartbeat: Seconds between two heartbeats of a node agent.

    Raises:
        InvalidInput: A value is below `MIN_SECONDS` or above `MAX_SECONDS`, or the heartbeat interval is not shorter than half the
            lease. With a longer interval, one delayed heartbeat could make a live node lost.
    """
    for option, seconds in (("--lease", lease), ("--heartbeat", heartbeat)):
        if not MIN_SECONDS <= seconds <= MAX_SECONDS:
            raise InvalidInput(f"{option}: needs {MIN_SECONDS:g} to {MAX_SECONDS:g} seconds, found {seconds:g}")
    if not heartbeat < lease / 2:
        raise InvalidInput(f"--heartbeat: needs less than half of --lease ({lease:g} s), found {heartbeat:g} s")
