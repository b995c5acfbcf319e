"""Measures the use of the node's GPUs at intervals, for the heartbeats of the session with the scheduler."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from hopyard._runtime.gpus import GpuDevice, GpuMeasurement
from hopyard._runtime.gpus.detection import measure
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard_nodeagent.settings import SlotSettings

Meter: TypeAlias = Callable[[Iterable[GpuDevice]], list[GpuMeasurement]]


class GpuMonitor:
    """The GPUs of the node's slots, and the newest measurement of their use.

    A thread measures, because a driver that fails may block the call. The agent then continues without measurements.
    """

    def __init__(self, slots: Sequence[SlotSettings], seconds: float, meter: Meter = measure) -> None:
        """Create a monitor that does not measure before `start`.

        Args:
            slots: The slots of the node.
            seconds: Interval in seconds between two measurements.
            meter: Measures the use of GPUs.
        """
        self._slots: dict[GpuDevice, list[str]] = {}
        for slot in slots:
            for device in slot.gpus:
                if device.uuid:
                    self._slots.setdefault(device, []).append(slot.id)
        self._seconds = seconds
        self._meter = meter
        self._newest: list[GpuMeasurement] = []
        self._fresh = False
        self._stop = threading.Event()

    def start(self) -> None:
        """Start to measure, if the node has GPUs."""
        if self._slots:
            threading.Thread(target=self._measure, name="gpu monitor", daemon=True).start()

    def stop(self) -> None:
        """End the measurements without waiting for the present one. Safe to call twice."""
        self._stop.set()

    def devices(self) -> list[wire.Gpu]:
        """Return the GPUs with their slots and the newest measurement of their use; without one, `use` is not set."""
        known = {one.uuid: one for one in self._newest}
        return [
            wire.Gpu(
                uuid=device.uuid,
                index=device.index,
                model=device.model,
                memory_bytes=device.memory_bytes,
                use=_message(known[device.uuid]) if device.uuid in known else None,
                slots=slots,
            )
            for device, slots in self._slots.items()
        ]

    def take(self) -> list[wire.GpuUse]:
        """Return the newest measurement if it was not returned before; else an empty list."""
        if not self._fresh:
            return []
        self._fresh = False
        return [_message(one) for one in self._newest]

    def _measure(self) -> None:
        while not self._stop.is_set():
            self._newest = self._meter(self._slots)
            self._fresh = True
            self._stop.wait(self._seconds)


def _message(one: GpuMeasurement) -> wire.GpuUse:
    return wire.GpuUse(uuid=one.uuid, memory_used_bytes=one.memory_used_bytes, utilization=one.utilization)
