"""The command `connection`: prints what a gRPC client in any language needs to call the services of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from hopyard.cli.options import Data, Json, Server


@dataclass(frozen=True)
class ConnectionDetails:
    """What a client needs to call the services of a cluster. It contains no secret.

    Attributes:
        target: gRPC target of the scheduler, unix:/PATH or HOST:PORT.
        appstat_target: gRPC target of AppStat.
        token_file: Absolute path of the file with the user token for the scheduler; None: the variable HOPYARD_USER_TOKEN contains it.
        appstat_token_file: The same for AppStat. It differs only if AppStat has another data directory on this computer.
        encrypted: Whether the connections are encrypted.
    """

    target: str
    appstat_target: str
    token_file: Path | None
    appstat_token_file: Path | None
    encrypted: bool


def register(app: typer.Typer) -> None:
    """Add the command `connection` to the command line `app`."""
    app.command(rich_help_panel="Set up")(connection)


def connection(server: Server = None, data: Data = None, json: Json = False) -> None:
    """Show how programs in any language connect to a running cluster.

    It prints the gRPC targets of the scheduler and of AppStat, and the file that contains the user token, after a call
    with this token. The token itself is never printed. If $HOPYARD_USER_TOKEN contains it, the file is null in --json.
    docs/clients.md has clients in several languages.

    **Examples:** `hopyard connection`, `hopyard connection --json | jq -r .token_file`
    """
    import asyncio

    from hopyard.cli.output import emit, emit_json

    found = asyncio.run(_connection_details(server, data))
    if json:
        emit_json(found)
    else:
        emit(_text(found))


async def _connection_details(server: str | None, data: Path | None) -> ConnectionDetails:
    """Find a cluster and the token for it, and query the address of AppStat.

    Raises:
        NotFound: No cluster runs in the data directory.
        Unavailable: The scheduler did not answer.
        Unauthenticated: There is no token for the cluster, or the scheduler does not accept it.
        InvalidInput: A file with a token is not private, or damaged.
    """
    import shlex

    from hopyard._net.auth import CallerKind
    from hopyard._net.auth.credentials import locate_token, secrets_of
    from hopyard.cli.connect import choose, client_of, running_server
    from hopyard.errors import NotFound

    given, folder = choose(server, data)
    target = given or await running_server(folder)
    if target is None:
        raise NotFound(
            f"no cluster runs in {folder}; start one with `hopyard up --data {shlex.quote(str(folder))}`, or name a running one with "
            "--server or --data"
        )
    token = locate_token(CallerKind.USER, target, None if given else folder)
    async with client_of(target, None if given else folder) as client:
        appstat = (await client.cluster()).appstat_address
    own = appstat != target and secrets_of(appstat) is not None
    appstat_token = locate_token(CallerKind.USER, appstat) if own else token
    return ConnectionDetails(target, appstat, _resolved(token.file), _resolved(appstat_token.file), encrypted=False)


def _resolved(file: Path | None) -> Path | None:
    return None if file is None else file.resolve()


def _text(found: ConnectionDetails) -> str:
    """Return the lines for people, each with a name and a value."""
    from hopyard._net.auth.credentials import VARIABLE
    from hopyard._net.rpc.address import is_socket

    def place(file: Path | None) -> str:
        return f"the variable {VARIABLE.format('USER')}" if file is None else str(file)

    why = "a Unix socket on this computer" if is_socket(found.target) else "who reads the traffic learns the token"
    lines = {
        "scheduler": found.target,
        "AppStat": found.appstat_target,
        "token": place(found.token_file),
        "AppStat's token": place(found.appstat_token_file),
        "header": "authorization: Bearer TOKEN (gRPC metadata of every call)",
        "encrypted": "yes" if found.encrypted else f"no ({why})",
        "clients": "docs/clients.md (Python, JavaScript, Ruby, C++, grpcurl, buf)",
    }
    if found.appstat_token_file == found.token_file:
        del lines["AppStat's token"]
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines.items())
