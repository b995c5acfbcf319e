"""gRPC and forks: it works in the process in which it was begun, and calls in one that was forked off later never end."""

from __future__ import annotations

import os

from hopyard.errors import Conflict

_begun_in: int | None = None


def begin() -> None:
    """Note that this process uses gRPC.

    Raises:
        Conflict: It was forked off from one that did.
    """
    global _begun_in
    if _begun_in is not None and _begun_in != os.getpid():
        raise forked(_begun_in)
    _begun_in = os.getpid()


def forked(parent: int) -> Conflict:
    """What is said in a process that was forked off."""
    return Conflict(
        f"process {os.getpid()} was forked off from process {parent}, which speaks with a cluster already, and cannot: start processes "
        'afresh (multiprocessing.get_context("spawn")), or fork before the first call'
    )
