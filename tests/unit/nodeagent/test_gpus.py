"""What an agent says of the GPUs of its slots."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from hopyard._runtime.gpus import GpuDevice, GpuMeasurement
from hopyard_nodeagent.hardware.gpus import GpuMonitor
from hopyard_nodeagent.settings import SlotSettings
from tests.timing import HANG_SECONDS

A, B = GpuDevice(0, "GPU-a", "A100", 40), GpuDevice(1, "GPU-b", "A100", 40)


@pytest.mark.quick
def test_gpus_are_listed_with_the_slots_that_see_them() -> None:
    slots = (
        SlotSettings(id="n/0", gpus=(A, B)),
        SlotSettings(id="n/1", gpus=(A,)),
        SlotSettings(id="n/2", gpus=(GpuDevice(7),)),
    )
    found = GpuMonitor(slots, 1.0).devices()
    assert [(gpu.uuid, gpu.index, gpu.model, gpu.memory_bytes, list(gpu.slots)) for gpu in found] == [
        ("GPU-a", 0, "A100", 40, ["n/0", "n/1"]),
        ("GPU-b", 1, "A100", 40, ["n/0"]),
    ]
    assert not found[0].HasField("use")


def test_a_measurement_is_sent_once_and_shown_until_the_next() -> None:
    import threading

    measured = threading.Event()

    def meter(devices: Iterable[GpuDevice]) -> list[GpuMeasurement]:
        if measured.is_set():
            raise AssertionError("measured again before the interval was over")
        measured.set()
        return [GpuMeasurement(device.uuid, 7, None) for device in devices]

    monitor = GpuMonitor([SlotSettings(id="n/0", gpus=(A,))], 3600.0, meter)
    assert monitor.take() == []
    monitor.start()
    try:
        assert measured.wait(HANG_SECONDS)
        while not (taken := monitor.take()):
            pass
        assert (taken[0].uuid, taken[0].memory_used_bytes, taken[0].HasField("utilization")) == ("GPU-a", 7, False)
        assert monitor.take() == []
        assert monitor.devices()[0].use.memory_used_bytes == 7
    finally:
        monitor.stop()


@pytest.mark.quick
def test_a_node_without_gpus_measures_nothing() -> None:
    def meter(_: Iterable[GpuDevice]) -> list[GpuMeasurement]:
        raise AssertionError("a node without GPUs has nothing to measure")

    monitor = GpuMonitor([SlotSettings(id="n/0")], 0.0, meter)
    monitor.start()
    assert monitor.devices() == monitor.take() == []
