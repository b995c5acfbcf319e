"""Detects forks of processes that use gRPC: in a forked child, calls would never end."""

from __future__ import annotations

import os

from hopyard.errors import Conflict

_begun_in: int | None = None


def begin() -> None:
    """Records that this process uses gRPC.

    Raises:
        Conflict: This process was forked from one that uses gRPC.
    """
    global _begun_in
    if _begun_in is not None and _begun_in != os.getpid():
        raise forked(_begun_in)
    _begun_in = os.getpid()


def forked(parent: int) -> Conflict:
    """Returns the error for a process that was forked from `parent`."""
    return Conflict(
        f"process {os.getpid()} was forked from process {parent}, which already uses gRPC, so it cannot call a cluster: start "
        'processes with multiprocessing.get_context("spawn"), or fork before the first call'
    )
