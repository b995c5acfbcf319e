"""Searches with an objective function: `Client.search` sends a Python function to the cluster and returns a handle (docs/python.md)."""

from hopyard.search.async_handle import AsyncSearchHandle, SearchFailed
from hopyard.search.sync_handle import SearchHandle

__all__ = ["AsyncSearchHandle", "SearchFailed", "SearchHandle"]
