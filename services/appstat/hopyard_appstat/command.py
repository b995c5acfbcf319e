"""The command `hopyard appstat`, which runs the AppStat service."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from hopyard._net.server import LogFormat, run_service
from hopyard._net.server.addresses import tcp_port
from hopyard._net.server.command_options import Host, Insecure, port_option
from hopyard_appstat.blobs.store import DEFAULT_MAX_BLOB_BYTES
from hopyard_appstat.database.connections import Synchronous
from hopyard_appstat.service import AppStatService


def command(
    data: Annotated[
        Path,
        typer.Option(
            file_okay=False,
            help="Folder for the database, the blobs and the file appstat.address, which contains the service's address.",
        ),
    ],
    host: Host = None,
    port: Annotated[int | None, port_option("4652")] = None,
    database: Annotated[
        str | None,
        typer.Option(
            help="URL of the database, such as postgresql+psycopg://USER@HOST/NAME; default: SQLite in --data."
        ),
    ] = None,
    synchronous: Annotated[
        Synchronous,
        typer.Option(help="When SQLite waits for the disk; full also survives a power failure without losing commits."),
    ] = Synchronous.NORMAL,
    store: Annotated[
        str | None,
        typer.Option(
            help="URL of the store of snapshots and other blobs: file:///FOLDER, s3://, gs://, az://; default: --data."
        ),
    ] = None,
    max_blob_bytes: Annotated[int, typer.Option(min=1, help="Maximum size of a blob in bytes.")] = (
        DEFAULT_MAX_BLOB_BYTES
    ),
    insecure: Insecure = False,
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Let the store in --data, which belongs to another cluster, belong to the cluster of the database.",
        ),
    ] = False,
    log_format: Annotated[LogFormat, typer.Option(help="Format of log lines.")] = LogFormat.TEXT,
    log_level: Annotated[str, typer.Option(help="Minimum level of logged messages.")] = "INFO",
) -> None:
    """Run the AppStat service, which stores the journal, statistics, snapshots and all other persistent data."""

    async def main(stop: asyncio.Event) -> None:
        service = AppStatService(
            data,
            host=host,
            port=tcp_port(host, port, 4652),
            insecure=insecure,
            database=database,
            synchronous=synchronous,
            store=store,
            max_blob_bytes=max_blob_bytes,
            adopt=adopt,
        )
        await service.run(stop)

    raise typer.Exit(run_service(main, name="appstat", log_format=log_format, log_level=log_level))
