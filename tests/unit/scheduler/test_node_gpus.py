"""What the scheduler shows of the GPUs of nodes."""

from __future__ import annotations

import pytest

from hopyard.v1 import resource_manager_pb2 as pb
from hopyard_scheduler.agents.gpus import MOST_GPUS, STALE_SECONDS, NodeGpus

pytestmark = pytest.mark.quick


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_use_of_gpus_is_shown_until_it_is_old() -> None:
    clock = Time()
    gpus = NodeGpus(clock)
    gpus.announce("n", [pb.Gpu(uuid="GPU-a", model="A100", use=pb.GpuUse(utilization=1.0))])
    assert gpus.show("m") == []
    assert [(one.uuid, one.model, one.HasField("use")) for one in gpus.show("n")] == [("GPU-a", "A100", False)]
    gpus.measured("n", [pb.GpuUse(uuid="GPU-a", memory_used_bytes=5), pb.GpuUse(uuid="GPU-z", memory_used_bytes=6)])
    (shown,) = gpus.show("n")
    assert (shown.use.memory_used_bytes, shown.use.HasField("utilization")) == (5, False)
    gpus.measured("n", [])
    clock.now += STALE_SECONDS
    assert gpus.show("n")[0].HasField("use")
    clock.now += 1
    assert not gpus.show("n")[0].HasField("use")


def test_a_new_session_replaces_the_gpus_and_their_number_is_bounded() -> None:
    gpus = NodeGpus(Time())
    gpus.announce("n", [pb.Gpu(uuid="GPU-a")])
    gpus.measured("n", [pb.GpuUse(uuid="GPU-a", memory_used_bytes=5)])
    gpus.announce("n", [pb.Gpu(uuid="GPU-a"), *(pb.Gpu(uuid=str(number)) for number in range(2 * MOST_GPUS))])
    assert len(gpus.show("n")) == MOST_GPUS
    assert not gpus.show("n")[0].HasField("use")
    gpus.measured("unknown", [pb.GpuUse(uuid="GPU-a")])
    assert gpus.show("unknown") == []
