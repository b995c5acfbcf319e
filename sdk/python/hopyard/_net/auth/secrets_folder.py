"""The folder `secrets` of a cluster: the tokens of its callers, what its services accept, and the scheduler's key for tickets.

| file | contents | read by |
|---|---|---|
| `user.token`, `node.token`, `service.token` | one token each | clients, agents, the scheduler |
| `accepted` | kind, id and SHA-256 of each accepted token, one line each | services that check tokens |
| `ticket.key` | 32 random bytes in hexadecimal digits | the scheduler |

The folder has mode 0700 and the files 0600. A file with a wider mode or of another user is refused. The first service that starts
creates them. A service on another computer needs a copy of `accepted` only.
"""

from __future__ import annotations

import logging
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from hopyard._common.private_files import make_private_folder, read_private, write_private
from hopyard._net.auth.principal import CallerKind
from hopyard._net.auth.tokens import Token, TokenAuthenticator, digest, new_token, parse_token
from hopyard.errors import AlreadyExists, InvalidInput, NotFound

_log = logging.getLogger(__name__)

SECRETS: Final = "secrets"
"""Name of the folder in the data folder of a cluster."""

STORED: Final = (CallerKind.USER, CallerKind.NODE, CallerKind.SERVICE)
"""The kinds of tokens that the folder stores; the others live as long as a process."""

_ACCEPTED: Final = "accepted"
_KEY: Final = "ticket.key"
_LINE: Final = re.compile(r"(user|node|service) ([0-9a-f]{8}) ([0-9a-f]{64})")


class SecretsFolder:
    """The secrets of one cluster.

    Args:
        path: The folder.

    Attributes:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path: Final = path

    def make(self) -> None:
        """Create the folder and its missing files. Services that start at the same time create the same contents.

        No token is created if `accepted` exists: tokens that were deleted, or are on another computer, do not come back.

        Raises:
            InvalidInput: The folder belongs to another user, or another user could replace it; or a file in it is not private, or
                damaged.
            OSError: The folder cannot be written.
        """
        make_private_folder(self.path)
        if not self.initialized:
            made = [self._make_token(kind) for kind in STORED]
            lines = "".join(f"{token.kind} {token.id} {digest(token.text)}\n" for token in made)
            write_private(self.path / _ACCEPTED, lines.encode())
            _log.info("created the tokens of this cluster in %s", self.path)
            return
        for kind in STORED:  # Clients would refuse such a file later, so the cluster does not start.
            with suppress(NotFound):
                self.token(kind)

    @property
    def initialized(self) -> bool:
        """Whether the tokens of the cluster were created: `accepted` is written last."""
        return (self.path / _ACCEPTED).exists()

    def token(self, kind: CallerKind) -> str:
        """Return the text of the token of a kind.

        Raises:
            NotFound: There is none.
            InvalidInput: Its file is not private or damaged.
        """
        return read_token(self.token_file(kind), kind).text

    def token_file(self, kind: CallerKind) -> Path:
        """Return the path of the file that contains the token of a kind."""
        return self.path / f"{kind}.token"

    def accept_all(self, tokens: TokenAuthenticator) -> None:
        """Add the tokens in `accepted` to those that an authenticator accepts.

        Raises:
            NotFound: There is no such file.
            InvalidInput: It is not private or damaged.
        """
        path = self.path / _ACCEPTED
        lines = _text(path).splitlines()
        if not lines:
            raise InvalidInput(
                f"{path}: the file is empty, so that no token would be accepted; delete the folder for new tokens"
            )
        for number, line in enumerate(lines, 1):
            found = _LINE.fullmatch(line)
            if found is None:
                raise InvalidInput(f"{path}: line {number}: needs KIND ID SHA256; delete the folder for new tokens")
            tokens.accept(CallerKind(found[1]), found[2], found[3])

    def ticket_key(self) -> bytes:
        """Return the scheduler's key for tickets, 32 bytes. It is created by the first call.

        Raises:
            InvalidInput: Its file is not private or damaged.
            OSError: It cannot be written.
        """
        path = self.path / _KEY
        if not path.exists():
            with suppress(AlreadyExists):  # Another service was faster.
                write_private(path, secrets.token_hex(32).encode(), replace=False)
        text = _text(path)
        if not re.fullmatch("[0-9a-f]{64}", text):
            raise InvalidInput(f"{path}: needs 64 hexadecimal digits; delete it for a new key")
        return bytes.fromhex(text)

    def _make_token(self, kind: CallerKind) -> Token:
        path = self.token_file(kind)
        try:
            return read_token(path, kind)
        except NotFound:
            token = new_token(kind)
        try:
            write_private(path, f"{token.text}\n".encode(), replace=False)
        except AlreadyExists:  # Another service was faster.
            return read_token(path, kind)
        return token


def read_token(path: Path, kind: CallerKind) -> Token:
    """Return the token in a file.

    Raises:
        NotFound: There is no such file.
        InvalidInput: The file is not private, or does not contain a token of this kind.
    """
    try:
        token = parse_token(_text(path))
    except InvalidInput as error:
        raise error if str(path) in str(error) else InvalidInput(f"{path}: {error}") from None
    if token.kind is not kind:
        raise InvalidInput(f"{path}: found a token of the kind {token.kind}, needed one of the kind {kind}")
    return token


def _text(path: Path) -> str:
    return read_private(path).decode("ascii", "replace").strip()
