"""Tokens: random secrets by which callers prove who they are.

The text of a token is `hop_KIND_ID_SECRET`, with a kind of `CallerKind`, an id of 8 hexadecimal digits and a secret of 256 bits in 43
characters of the URL-safe base64 alphabet. The prefix lets programs that search for leaked secrets find it. Services store only its
SHA-256: a random secret of this size needs no slower hash.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Final, NamedTuple

from hopyard._net.auth.principal import CallerKind, Principal
from hopyard.errors import InvalidInput

_TOKEN: Final = re.compile(r"hop_(user|node|service|policy|run)_([0-9a-f]{8})_([A-Za-z0-9_-]{43})")


class Token(NamedTuple):
    """A token. Its text is a secret: it must appear in no log, error, journal or list of processes.

    Attributes:
        kind: The kind of its callers.
        id: Its id, which is not secret.
        text: The whole token.
    """

    kind: CallerKind
    id: str
    text: str

    def __repr__(self) -> str:
        """Return the token without its secret."""
        return f"Token({self.kind}, {self.id})"


def new_token(kind: CallerKind) -> Token:
    """Return a new random token of a kind other than `CallerKind.TICKET`."""
    name = secrets.token_hex(4)
    return Token(kind, name, f"hop_{kind}_{name}_{secrets.token_urlsafe(32)}")


def parse_token(text: str) -> Token:
    """Return the token with this text.

    Raises:
        InvalidInput: It is not the text of a token. The message does not contain the text.
    """
    found = _TOKEN.fullmatch(text)
    if found is None:
        raise InvalidInput("found no token; a token is hop_KIND_ID_SECRET in one line")
    return Token(CallerKind(found[1]), found[2], text)


def digest(token: str) -> str:
    """Return the SHA-256 of a token's text, as 64 hexadecimal digits."""
    return hashlib.sha256(token.encode()).hexdigest()


class TokenAuthenticator:
    """The tokens that a server accepts, each as its kind, id and SHA-256. Implements `Authenticator`."""

    def __init__(self) -> None:
        self._accepted: dict[tuple[str, str], tuple[str, Principal]] = {}

    def accept(self, kind: CallerKind, token_id: str, sha256: str, scope: str = "") -> None:
        """Accept a token from now on.

        Args:
            kind: Kind of the token.
            token_id: Id of the token.
            sha256: SHA-256 of its text, as `digest` returns it.
            scope: The scope of its principal.
        """
        self._accepted[kind, token_id] = sha256, Principal(kind, token_id, scope)

    def add(self, token: Token, scope: str = "") -> None:
        """Accept a token, whose principal has this scope, from now on."""
        self.accept(token.kind, token.id, digest(token.text), scope)

    def remove(self, token: Token) -> None:
        """Accept a token no longer. Without effect if it is not accepted."""
        self._accepted.pop((token.kind, token.id), None)

    def authenticate(self, token: str) -> Principal | None:
        """Return the principal of a token; None: the token is not accepted. Hashes are compared in constant time."""
        found = _TOKEN.fullmatch(token)
        if found is None:
            return None
        accepted, principal = self._accepted.get((found[1], found[2]), ("", None))
        return principal if hmac.compare_digest(accepted, digest(token)) else None
