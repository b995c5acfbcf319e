"""Detects forks of processes that use gRPC, because gRPC calls in a forked child would never end."""

from __future__ import annotations

import os

from hopyard.errors import Conflict

_begun_in: int | None = None


def begin() -> None:
    """Record that this process uses gRPC.

    Raises:
        Conflict: This process was forked from one that already used gRPC.
    """
    global _begun_in
    if _begun_in is not None and _begun_in != os.getpid():
        raise forked(_begun_in)
    _begun_in = os.getpid()


def forked(parent: int) -> Conflict:
    """Return the error to raise in this process, which was forked from the process with the id `parent` after that used gRPC."""
    return Conflict(
        f"process {os.getpid()} was forked from process {parent}, which already uses gRPC, so it cannot call a cluster: start "
        'processes with multiprocessing.get_context("spawn"), or fork before the first call'
    )
