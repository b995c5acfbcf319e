"""Tests of the validation of the request with which an agent opens its session."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import MagicMock

import pytest

from hopyard.errors import InvalidInput
from hopyard.v1 import resource_manager_pb2 as pb
from hopyard_scheduler.agents.gpus import NodeGpus
from hopyard_scheduler.agents.session_requests import SessionRequests

pytestmark = pytest.mark.quick


def hello(**changes: Any) -> pb.AgentHello:
    """Return the hello of an honest agent, with changed fields."""
    slots = [pb.Slot(id="gpu-01.example_org/0", cpus=8, gpus=[0, 1], hardware="AMD EPYC 7763, 128 CPUs")]
    gpus = [pb.Gpu(uuid="GPU-1", index=0, model="NVIDIA A100", memory_bytes=2**36, slots=["gpu-01.example_org/0"])]
    return pb.AgentHello(**{"node": "gpu-01.example_org", "incarnation": "1", "slots": slots, "gpus": gpus} | changes)


def opened(given: pb.AgentHello) -> MagicMock:
    """Open a session with a hello. Return the register of sessions."""
    sessions = MagicMock()
    sessions.occupied.return_value = False
    runtime = MagicMock()
    runtime.journal.epoch = 1
    runtime.journal.history = "new"
    runtime.clock.return_value = 1.0
    runtime.submit.side_effect = _submit
    requests = SessionRequests(runtime, sessions, MagicMock(), MagicMock(), MagicMock(), MagicMock())

    async def sent() -> AsyncIterator[pb.AgentSessionRequest]:
        yield pb.AgentSessionRequest(hello=given)

    asyncio.run(requests.open(sent()))
    return sessions


async def _submit(event: object) -> None:
    pass


def slot(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"id": "n/0", "cpus": 1, **changes}
    return {"slots": [pb.Slot(**fields)]}


def gpu(**changes: Any) -> dict[str, Any]:
    return {"gpus": [pb.Gpu(**{"uuid": "GPU-1"} | changes)]}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"node": "n" * 128},
        {"slots": [], "gpus": []},
        slot(id="n" * 200),
        slot(cpus=100_000, gpus=range(64)),
        slot(gpus=[1024]),
        gpu(memory_bytes=2**46, index=1024, slots=[f"n/{n}" for n in range(4096)]),
        {"slots": [pb.Slot(id=f"n/{n}", cpus=1) for n in range(4096)]},
    ],
)
def test_a_valid_hello_opens_a_session(changes: dict[str, Any]) -> None:
    assert opened(hello(**changes)).open.called


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"node": "../../\0\n\x1b[31m"}, r"hello.node: found '../../\x00\n\x1b[31m', allowed are 1 to 128 letters"),
        ({"node": ".."}, "hello.node: found '..'"),
        ({"node": "n" * 129}, "hello.node: found 'nnn"),
        ({"node": "a b"}, "hello.node: found 'a b'"),
        ({"incarnation": "\0"}, "hello.incarnation: found"),
        (slot(id=""), "hello.slots[0].id: found '', allowed are 1 to 200 printable characters"),
        (slot(id="z" * 201), "hello.slots[0].id: found 'zzz"),
        (slot(id="\0\n"), "hello.slots[0].id: found"),
        (slot(hardware="\x1b[31m"), "hello.slots[0].hardware: found"),
        (slot(cpus=-5), "hello: slots[0].cpus: found -5, allowed is 1 to 100000"),
        (slot(cpus=2**31 - 1), "hello: slots[0].cpus: found 2147483647, allowed is 1 to 100000"),
        (slot(gpus=[-1]), "hello: slots[0].gpus: found -1, allowed is 0 to 1024"),
        (slot(gpus=[1025]), "hello: slots[0].gpus: found 1025, allowed is 0 to 1024"),
        (slot(gpus=[0] * 65), "hello: number of slots[0].gpus: found 65, allowed is 0 to 64"),
        ({"slots": [pb.Slot(id="n/0", cpus=1)] * 4097}, "hello: number of slots: found 4097, allowed is 0 to 4096"),
        (gpu(uuid=""), "hello.gpus[0].uuid: found ''"),
        (gpu(index=-5), "hello: gpus[0].index: found -5"),
        (gpu(memory_bytes=-1), "hello: gpus[0].memory_bytes: found -1, allowed is 0 to 70368744177664"),
        (gpu(model="\x9b"), "hello.gpus[0].model: found"),
        (gpu(slots=["\x1b"]), "hello.gpus[0].slots: found"),
    ],
)
def test_an_invalid_hello_is_refused_with_its_field(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        opened(hello(**changes))
    assert str(caught.value).startswith(said)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("wrong", [{"memory_used_bytes": -1}, {"utilization": math.nan}, {"utilization": -0.5}])
def test_impossible_measurements_of_gpus_are_ignored(wrong: dict[str, Any]) -> None:
    gpus = NodeGpus(lambda: 0.0)
    gpus.announce("n", [pb.Gpu(uuid="GPU-1")])
    gpus.measured("n", [pb.GpuUse(uuid="GPU-1", **wrong)])
    assert not gpus.show("n")[0].HasField("use")
