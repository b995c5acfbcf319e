"""The command `hopyard agent`, which runs a node agent."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from typing import Annotated

import typer

from hopyard._common.environment import check_patterns
from hopyard._common.node_names import check_node_name
from hopyard._net.server import LogFormat, run_service
from hopyard._net.server.addresses import check_host, tcp_port
from hopyard._net.server.command_options import Host, Insecure, port_option
from hopyard._net.server.main_loop import EXIT_DONE, EXIT_INTERRUPTED
from hopyard._runtime.gpus import GpuOptions, SlotLayout, lay_out_slots
from hopyard._runtime.processes.cpus import available_cpus
from hopyard.errors import InvalidInput
from hopyard_nodeagent.agent import NodeAgent
from hopyard_nodeagent.hardware import description
from hopyard_nodeagent.settings import AgentSettings, SlotSettings

_log = logging.getLogger(__name__)


def command(
    scheduler: Annotated[
        str,
        typer.Option(
            help="Address of the scheduler, HOST:PORT or unix:/PATH, or its data folder on this computer (a path with a /)."
        ),
    ],
    data: Annotated[Path, typer.Option(help="Folder of this agent for snapshots, code and logs.")],
    appstat: Annotated[str | None, typer.Option(help="Address of AppStat; default: from the scheduler.")] = None,
    node: Annotated[str | None, typer.Option(help="Unique name of this node; default: the host name.")] = None,
    slots: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1024,
            help="Number of slots: training processes at one time; default: one per GPU, else one.",
            show_default=False,
        ),
    ] = None,
    cpus_per_slot: Annotated[
        int | None,
        typer.Option(min=1, help="CPU threads of a training process; default: the CPUs divided by the slots."),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            metavar="all|none|LIST",
            help="GPUs of the slots: all, none, or indices and UUIDs such as 0,2; default: those that CUDA_VISIBLE_DEVICES "
            "shows. --slots divides them evenly.",
            show_default=False,
        ),
    ] = None,
    gpus_per_slot: Annotated[
        int | None, typer.Option(min=1, max=1024, help="GPUs of each slot; default: 1.", show_default=False)
    ] = None,
    slots_per_gpu: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1024,
            help="Slots that share each GPU; its memory is then shared and not limited; default: 1.",
            show_default=False,
        ),
    ] = None,
    host: Host = None,
    port: Annotated[int | None, port_option("a free one")] = None,
    insecure: Insecure = False,
    idle_runner_seconds: Annotated[
        float, typer.Option(min=0, help="Seconds for which an idle training process is kept for reuse.")
    ] = 300.0,
    snapshot_quota: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="Limit of the snapshot folder, such as 50GiB. Above it, copies of stored snapshots are deleted, the least "
            "recently used first; default: no limit.",
            show_default=False,
        ),
    ] = None,
    data_quota: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="Limit of the copies of data partitions from URLs, such as 200GiB. Above it, the least recently used are "
            "deleted; default: no limit.",
            show_default=False,
        ),
    ] = None,
    criu: Annotated[
        str,
        typer.Option(
            metavar="PROGRAM",
            envvar="HOPYARD_CRIU",
            help="The CRIU program for snapshots of whole processes; off: none; default: the one on PATH, or the one that "
            "deploy/install-criu.sh installed.",
            show_default=False,
        ),
    ] = "",
    image_memory: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="Memory (tmpfs) for process images while they are saved or restored, such as 4GiB; larger images use the "
            "disk; default: a quarter of the memory.",
            show_default=False,
        ),
    ] = None,
    pass_env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Environment variable of this agent that all its training processes get, in addition to the usual ones. "
            "Repeat it for several; * stands for any characters.",
            show_default=False,
        ),
    ] = None,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Let --data, which belongs to another cluster, belong to the cluster of this scheduler, with all snapshots in it. "
            "Those that no experiment of this cluster has are deleted after `hopyard scheduler --keep-unknown`.",
        ),
    ] = False,
    gang_join_seconds: Annotated[
        float,
        typer.Option(
            min=0, help="Seconds within which the processes of a job on several slots must connect to each other."
        ),
    ] = 300.0,
    grace: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="After SIGTERM or Ctrl-C, time for runs to be suspended and snapshots to be stored; 0: end at once. A second "
            "signal ends at once.",
        ),
    ] = "30s",
    log_format: Annotated[LogFormat, typer.Option(help="Format of log lines.")] = LogFormat.TEXT,
    log_level: Annotated[str, typer.Option(help="Minimum level of logged messages.")] = "INFO",
) -> None:
    """Run a node agent: it brings this host's slots into the cluster and runs training processes on them.

    A host with NVIDIA GPUs has one slot per GPU, others one slot, unless options say otherwise.

    SIGTERM and Ctrl-C end it in order, with exit code 0: no run starts any more, its runs are suspended at their next
    boundary and continue on other nodes, and its snapshots are stored, within --grace.

    **Examples:** `hopyard agent --scheduler head:4650 --data /var/lib/hopyard`, `hopyard agent --scheduler head:4650 --data
    agent --gpus 0,1 --slots-per-gpu 2`
    """
    quota, partitions = quota_of(snapshot_quota), quota_of(data_quota, "--data-quota")
    images = quota_of(image_memory, "--image-memory")
    passed = check_patterns(pass_env or ())
    grace_seconds = _grace_of(grace)
    if host is not None:
        check_host(host)
    options = GpuOptions(gpus, gpus_per_slot, slots_per_gpu)

    async def main(stop: asyncio.Event) -> None:
        name = check_node_name(node or socket.gethostname(), "--node")
        layout = await asyncio.to_thread(lay_out_slots, options, slots)
        for note in layout.notes:
            _log.info("%s", note)
        for warning in layout.warnings:
            _log.warning("%s", warning)
        settings = AgentSettings(
            node=name,
            scheduler=scheduler,
            appstat=appstat,
            data=data,
            slots=divide_node(name, layout, cpus_per_slot),
            host=host,
            port=tcp_port(host, port, 0),
            insecure=insecure,
            idle_runner_seconds=idle_runner_seconds,
            # Two per CPU: further ones would stay idle, and processes that start at the same time share the CPUs.
            spare_runners=2 * available_cpus() if idle_runner_seconds else 0,
            snapshot_quota=quota,
            data_quota=partitions,
            criu=criu,
            image_memory=images,
            pass_env=passed,
            join_seconds=gang_join_seconds,
            adopt=adopt,
            contain=True,
        )
        agent = NodeAgent(settings)
        hurry = False
        try:
            await agent.start()
            await agent.wait(stop)
            await agent.leave(grace_seconds)
        except asyncio.CancelledError:
            hurry = True
            raise
        finally:
            await agent.stop(flush=not hurry)

    code = run_service(main, name="agent", log_format=log_format, log_level=log_level)
    # Ctrl-C is a regular way to end an agent.
    raise typer.Exit(EXIT_DONE if code == EXIT_INTERRUPTED else code)


def _grace_of(given: str) -> float:
    """Return the seconds that the option --grace specifies.

    Raises:
        InvalidInput: The text is neither 0 nor a time such as "30" or "5m".
    """
    if given in ("0", "0.0"):
        return 0.0
    from hopyard.spec.units import option_seconds  # The import is slow.

    return option_seconds("--grace", given)


def quota_of(given: str | None, option: str = "--snapshot-quota") -> int | None:
    """Return the number of bytes that an option such as "50GiB" specifies; None if the option is not given.

    Args:
        given: The text of the option; None: not given.
        option: Name of the option, for the error message.

    Raises:
        InvalidInput: The text is not a positive number of bytes, with or without a unit (such as "4096", "500MB" or "50GiB").
    """
    if given is None:
        return None
    from hopyard.spec.units import size_bytes  # The import is slow.

    try:
        return size_bytes(given)
    except ValueError as error:
        raise InvalidInput(f"{option}: {error}") from error


def divide_node(node: str, layout: SlotLayout, cpus_per_slot: int | None) -> tuple[SlotSettings, ...]:
    """Return the slots of a node, with its CPUs divided evenly.

    Args:
        node: Name of the node; slot i has the id "node/i".
        layout: The slots with their GPUs.
        cpus_per_slot: CPU threads per slot; None: the CPUs that this process may use, divided by the number of slots, at
            least 1.
    """
    cpus = cpus_per_slot or max(1, available_cpus() // len(layout.slots))
    host = description.cpus()

    def settings(index: int) -> SlotSettings:
        gpus = layout.slots[index]
        kind = description.hardware(host, gpus, layout.slots_per_gpu)
        return SlotSettings(id=f"{node}/{index}", cpus=cpus, gpus=gpus, hardware=kind)

    return tuple(map(settings, range(len(layout.slots))))
