"""Finds the token with which a process calls a service.

A token is found next to the address: in the folder `secrets` of the data folder whose socket or address file is used. Elsewhere
environment variables name it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from hopyard._common.private_files import check_own_folder
from hopyard._net.auth.principal import CallerKind
from hopyard._net.auth.secrets_folder import SECRETS, SecretsFolder, read_token
from hopyard._net.auth.tokens import Token, parse_token
from hopyard._net.rpc.address import check_address, is_socket, socket_file
from hopyard.errors import InvalidInput, NotFound, Unauthenticated, Unavailable

VARIABLE: Final = "HOPYARD_{}_TOKEN"
"""Name of the environment variable with the token of a kind in capitals; the suffix `FILE` names its file."""

FILE: Final = "_FILE"


class FoundToken(NamedTuple):
    """A token, and where it was found.

    Attributes:
        text: The token, which is a secret.
        file: The file that contains it; None: the value of an environment variable.
    """

    text: str
    file: Path | None

    def __repr__(self) -> str:
        """Return the place without the secret."""
        return f"FoundToken({self.file})"


def find_token(
    kind: CallerKind,
    address: str,
    data: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    *,
    variable: str = "",
) -> str:
    """Return the text of the token that `locate_token` finds. Arguments and errors are the same."""
    return locate_token(kind, address, data, environment, variable=variable).text


def locate_token(
    kind: CallerKind,
    address: str,
    data: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    *,
    variable: str = "",
) -> FoundToken:
    """Return the token for calls to a service, and its file: the first that exists of the following.

    1. for a socket: the token in the folder `secrets` next to it, or in the folder above;
    2. for a TCP port: the token in the folder `secrets` of `data`;
    3. the value of `variable`;
    4. the token in the file that the variable with this name and the suffix _FILE names.

    Args:
        kind: Kind of the caller: user, node or service.
        address: unix:/PATH or HOST:PORT of the service.
        data: The data folder whose address file contains the address, or that of a service of the same cluster; None: none.
        environment: The environment variables.
        variable: Name of the variable; empty: HOPYARD_KIND_TOKEN, such as HOPYARD_USER_TOKEN.

    Raises:
        Unavailable: There is none, and no service has listened on the socket yet.
        Unauthenticated: There is none. The message says where one is needed.
        InvalidInput: The address is neither unix:/PATH nor HOST:PORT; another user can change the folder of the socket or of the
            tokens; a file is not private; or a file or variable does not contain a token of this kind.
        NotFound: The file that a variable names does not exist.
    """
    check_address(address)
    if is_socket(address):  # Whoever listens there receives the token.
        check_own_folder(socket_file(address).parent)
    for folder in _folders(address, data):
        if folder.exists():
            check_own_folder(folder.parent)
        secrets = SecretsFolder(folder)
        try:
            return FoundToken(secrets.token(kind), secrets.token_file(kind))
        except NotFound:
            continue
    name = variable or VARIABLE.format(kind.upper())
    if given := environment.get(name):
        try:
            token = _given(name, given)
        except InvalidInput as error:
            raise InvalidInput(f"{error}; to name a file, set {name}{FILE}") from None
        if token.kind is not kind:
            raise InvalidInput(f"{name}: found a token of the kind {token.kind}, needed one of the kind {kind}")
        return FoundToken(token.text, None)
    if file := environment.get(name + FILE):
        try:
            return FoundToken(read_token(Path(file), kind).text, Path(file))
        except (InvalidInput, NotFound) as error:
            raise type(error)(f"{name}{FILE}: {error}") from None
    if is_socket(address) and not any(SecretsFolder(folder).initialized for folder in _folders(address, data)):
        if not socket_file(address).exists():
            raise Unavailable(f"no service has listened on {address} yet")
        place = _folders(address, data)[-1]
        raise Unauthenticated(f"{place} has no tokens, but a service listens on {address}: restart the cluster")
    raise Unauthenticated(
        f"there is no token for the service at {address}: set {name}{FILE} to a copy of the file secrets/{kind}.token of its data "
        "directory"
    )


def user_token(text: str) -> str:
    """Return the text of a user token without the white space around it.

    Raises:
        InvalidInput: It is no user token. The message does not contain the text.
    """
    token = _given("token", text)
    if token.kind is not CallerKind.USER:
        raise InvalidInput(f"token: found a token of the kind {token.kind}, needed one of the kind user")
    return token.text


def secrets_of(address: str, data: Path | None = None) -> SecretsFolder | None:
    """Return the folder of secrets next to an address; None: there is none. The arguments are those of `find_token`."""
    found = (folder for folder in _folders(address, data) if folder.is_dir())
    folder = next(found, None)
    return None if folder is None else SecretsFolder(folder)


def _folders(address: str, data: Path | None) -> list[Path]:
    if is_socket(address):
        socket = socket_file(address)
        return [socket.parent / SECRETS, socket.parent.parent / SECRETS]
    return [] if data is None else [data / SECRETS]


def _given(name: str, text: str) -> Token:
    try:
        return parse_token(text.strip())
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from None
