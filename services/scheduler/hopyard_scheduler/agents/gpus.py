"""The GPUs that agents announce, and their use as heartbeats report it. It is shown to people and not stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from hopyard.v1 import resource_manager_pb2 as pb

MOST_GPUS: Final = 1024
"""Maximum number of GPUs per node that are kept."""

STALE_SECONDS: Final = 30.0
"""Seconds after which a measurement is not shown any more."""


class NodeGpus:
    """The GPUs of all nodes that have opened a session.

    Args:
        clock: Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._devices: dict[str, dict[str, pb.Gpu]] = {}
        self._measured: dict[str, float] = {}

    def announce(self, node: str, gpus: Iterable[pb.Gpu]) -> None:
        """Replace the GPUs of a node by those that its agent lists at the start of a session, without a measured use.

        GPUs after the first `MOST_GPUS` are ignored.
        """
        kept: dict[str, pb.Gpu] = {}
        for given in gpus:
            if len(kept) == MOST_GPUS:
                break
            kept[given.uuid] = pb.Gpu()
            kept[given.uuid].CopyFrom(given)
            kept[given.uuid].ClearField("use")
        self._devices[node] = kept
        self._measured.pop(node, None)

    def measured(self, node: str, uses: Iterable[pb.GpuUse]) -> None:
        """Record the use of a node's GPUs. Measurements of unknown GPUs, and those out of range, are ignored."""
        known = self._devices.get(node, {})
        for use in uses:
            if use.uuid in known and use.memory_used_bytes >= 0 and 0 <= use.utilization <= 1:
                known[use.uuid].use.CopyFrom(use)
                self._measured[node] = self._clock()

    def forget(self, node: str) -> None:
        """Remove the GPUs of a node. Does nothing if none are known."""
        self._devices.pop(node, None)
        self._measured.pop(node, None)

    def show(self, node: str) -> list[pb.Gpu]:
        """Return the GPUs of a node, with their use if it was reported in the last `STALE_SECONDS` seconds; empty: none are known."""
        stale = self._clock() - self._measured.get(node, float("-inf")) > STALE_SECONDS
        shown = []
        for device in self._devices.get(node, {}).values():
            copy = pb.Gpu()
            copy.CopyFrom(device)
            if stale:
                copy.ClearField("use")
            shown.append(copy)
        return shown
