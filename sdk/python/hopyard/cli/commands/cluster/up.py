"""The command `up`: runs a cluster with each service in its own process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hopyard.cli.options import Gpus, GpusPerSlot, SlotsPerGpu


def register(app: typer.Typer) -> None:
    """Add the command `up` to the command line `app`."""
    app.command(rich_help_panel="Services")(up)


def up(
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="The cluster's data directory.", envvar="HOPYARD_DATA")
    ] = Path("hopyard-data"),
    slots: Annotated[
        int | None,
        typer.Option(
            "--slots", min=1, max=1024, help="Slots of each agent. [default: one per GPU, else 1]", show_default=False
        ),
    ] = None,
    gpus: Gpus = None,
    gpus_per_slot: GpusPerSlot = None,
    slots_per_gpu: SlotsPerGpu = None,
    agents: Annotated[int, typer.Option("--agents", min=0, max=64, help="Node agents on this computer.")] = 1,
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            help="Address at which other computers reach this one, to listen on TCP ports. "
            "[default: Unix sockets in --data, which only you can use]",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            help="The scheduler's TCP port, with --host; 0: a free one. [default: 4650]",
            show_default=False,
        ),
    ] = None,
    snapshot_quota: Annotated[
        str | None,
        typer.Option(
            "--snapshot-quota",
            metavar="BYTES",
            help="Quota of each agent's snapshot folder, such as 50GiB; local copies of stored snapshots are evicted.",
            show_default=False,
        ),
    ] = None,
    store_quota: Annotated[
        str | None,
        typer.Option(
            "--store-quota",
            metavar="BYTES",
            help="Quota of the snapshots of all experiments in the store, such as 500GiB; those that are the "
            "fastest to recreate are evicted. The value is stored; `none` removes it.",
            show_default=False,
        ),
    ] = None,
    keep_unknown: Annotated[
        str | None,
        typer.Option(
            "--keep-unknown",
            metavar="TIME",
            help="Time for which a node keeps an unused snapshot that no experiment needs and of which the cluster has no record, "
            "such as after an older database was restored: 1d to 3650d. [default: 7d]",
            show_default=False,
        ),
    ] = None,
    pass_env: Annotated[
        list[str] | None,
        typer.Option(
            "--pass-env",
            metavar="NAME",
            help="Environment variable that all jobs get from this command, in addition to the usual ones. Repeat it for several; "
            "* stands for any characters.",
            show_default=False,
        ),
    ] = None,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Start although the database in --data was lost or exchanged: snapshots and code in --data belong to its cluster from "
            "now on. Snapshots that no experiment in the database needs are deleted after --keep-unknown.",
        ),
    ] = False,
    nodes: Annotated[str | None, typer.Option("--nodes", hidden=True)] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow --host without encryption, on a network whose users you trust.")
    ] = False,
) -> None:
    """Run a cluster on this computer until Ctrl-C.

    It consists of AppStat, hpgen, the scheduler and node agents, each restarted if it crashes. Ctrl-C stops them in
    order, with exit code 0; a second Ctrl-C kills them immediately. A closed terminal stops them in order, too, unless
    the command was started with `nohup`. Unfinished experiments continue when the cluster is
    started again.

    On a computer with NVIDIA GPUs each visible GPU is one slot. Several agents divide the GPUs evenly.

    **Examples:** `hopyard up --slots 4`, then `hopyard run experiment.yaml` in another terminal; `hopyard up --agents 2
    --slots 2`, `hopyard up --gpus 0,1 --slots-per-gpu 2`
    """
    from hopyard._common.environment import check_patterns
    from hopyard._net.server.addresses import check_host, tcp_port
    from hopyard._runtime.gpus import GpuOptions
    from hopyard.cli.commands.cluster.supervisor import run_cluster
    from hopyard.cli.errors import WrongUse
    from hopyard.spec.units import KEEP_UNKNOWN, option_seconds, size_bytes, size_or_none

    if nodes is not None:
        raise WrongUse(
            "hopyard up has no option --nodes; did you mean --agents? Each agent is a node: node1, node2, ..."
        )
    if host is not None:
        check_host(host)
    for option, given, read in (
        ("--snapshot-quota", snapshot_quota, size_bytes),
        ("--store-quota", store_quota, size_or_none),
    ):
        if given is not None:
            try:
                read(given)
            except ValueError as error:
                raise WrongUse(f"{option} {error}") from error
    if keep_unknown is not None:
        option_seconds("--keep-unknown", keep_unknown, allowed=KEEP_UNKNOWN)
    raise typer.Exit(
        run_cluster(
            data,
            slots=slots,
            gpus=GpuOptions(gpus, gpus_per_slot, slots_per_gpu),
            agents=agents,
            host=host,
            port=tcp_port(host, port, 4650),
            insecure=insecure,
            snapshot_quota=snapshot_quota,
            store_quota=store_quota,
            keep_unknown=keep_unknown,
            pass_env=check_patterns(pass_env or ()),
            adopt=adopt,
        )
    )
