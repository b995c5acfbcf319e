"""The client of a Hopyard cluster: `Client`, and `AsyncClient` for asyncio. `types` and `datasets` define the values they return.

Both names are loaded on first use, so a command that only prints its help does not import gRPC.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hopyard.client.async_client import AsyncClient
    from hopyard.client.sync_client import Client

__all__ = ["AsyncClient", "Client"]

_HOME: Final = {"AsyncClient": "hopyard.client.async_client", "Client": "hopyard.client.sync_client"}


def __getattr__(name: str) -> object:
    """Load a public name from its module on first use (PEP 562). Raise AttributeError for any other name."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value
