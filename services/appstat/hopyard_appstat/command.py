"""The command `hopyard appstat`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from hopyard._net.server import LogFormat, run_service
from hopyard_appstat.blobs.store import DEFAULT_MAX_BLOB_BYTES
from hopyard_appstat.database.connections import Synchronous
from hopyard_appstat.service import AppStatService


def command(
    data: Annotated[
        Path,
        typer.Option(
            file_okay=False,
            help="Folder for the database, the blobs and appstat.address, which tells other services where it listens.",
        ),
    ],
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 4652,
    database: Annotated[
        str | None,
        typer.Option(help="URL of the database, such as postgresql+psycopg://USER@HOST/NAME; else SQLite in --data."),
    ] = None,
    synchronous: Annotated[
        Synchronous,
        typer.Option(help="When SQLite waits for the disk; full also survives a power failure without losing commits."),
    ] = Synchronous.NORMAL,
    store: Annotated[
        str | None,
        typer.Option(help="URL where snapshots and other blobs go: file:///FOLDER, s3://, gs://, az://; else --data."),
    ] = None,
    max_blob_bytes: Annotated[int, typer.Option(min=1, help="Maximum size of a blob in bytes.")] = (
        DEFAULT_MAX_BLOB_BYTES
    ),
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond this computer without encryption, on a network you trust.")
    ] = False,
    log_format: Annotated[LogFormat, typer.Option(help="How log lines look.")] = LogFormat.TEXT,
    log_level: Annotated[str, typer.Option(help="Least severe level that is logged.")] = "INFO",
) -> None:
    """Run the AppStat service, which stores the journal, statistics, snapshots and everything else that must survive."""

    async def main(stop: asyncio.Event) -> None:
        service = AppStatService(
            data,
            host=host,
            port=port,
            insecure=insecure,
            database=database,
            synchronous=synchronous,
            store=store,
            max_blob_bytes=max_blob_bytes,
        )
        await service.run(stop)

    raise typer.Exit(run_service(main, name="appstat", log_format=log_format, log_level=log_level))
