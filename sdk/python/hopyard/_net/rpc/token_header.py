"""The header that carries the token of a caller: `authorization: Bearer TOKEN`."""

from __future__ import annotations

from typing import Final

AUTHORIZATION: Final = "authorization"
"""Name of the header, a metadata key of gRPC."""

SCHEME: Final = "Bearer "
"""Beginning of its value; the token follows."""
