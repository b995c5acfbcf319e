"""Validation of the hello: the first request of an agent's session, with which the agent describes itself."""

from __future__ import annotations

from typing import Final

from hopyard._common.bounded_json import MAX_COUNT
from hopyard._common.node_names import check_node_name
from hopyard.errors import InvalidInput
from hopyard.v1 import resource_manager_pb2 as pb

MAX_TEXT: Final = 200
"""Maximum number of characters in the id of a slot and in other texts."""

MAX_SLOTS: Final = 4096
MAX_CPUS: Final = 100_000
MAX_GPU: Final = 1024
"""Maximum index of a GPU on its node."""

MAX_SLOT_GPUS: Final = 64


def check_hello(hello: pb.AgentHello) -> None:
    """Raise InvalidInput unless a hello is complete, its numbers are in range, and its texts are short and printable.

    The texts become part of journals, logs and tables. The message of the error names the field.
    """
    if not (hello.node and hello.incarnation):
        raise InvalidInput("hello: node and incarnation are required")
    check_node_name(hello.node, "hello.node")
    _check_text("incarnation", hello.incarnation)
    _check_range("number of slots", len(hello.slots), 0, MAX_SLOTS)
    for number, slot in enumerate(hello.slots):
        path = f"slots[{number}]"
        _check_text(f"{path}.id", slot.id, required=True)
        _check_text(f"{path}.hardware", slot.hardware)
        _check_range(f"{path}.cpus", slot.cpus, 1, MAX_CPUS)
        _check_range(f"number of {path}.gpus", len(slot.gpus), 0, MAX_SLOT_GPUS)
        for index in slot.gpus:
            _check_range(f"{path}.gpus", index, 0, MAX_GPU)
    for number, gpu in enumerate(hello.gpus):
        path = f"gpus[{number}]"
        _check_text(f"{path}.uuid", gpu.uuid, required=True)
        _check_text(f"{path}.model", gpu.model)
        _check_range(f"{path}.index", gpu.index, 0, MAX_GPU)
        _check_range(f"{path}.memory_bytes", gpu.memory_bytes, 0, MAX_COUNT)
        _check_range(f"number of {path}.slots", len(gpu.slots), 0, MAX_SLOTS)
        for name in gpu.slots:
            _check_text(f"{path}.slots", name, required=True)


def _check_text(path: str, text: str, *, required: bool = False) -> None:
    if len(text) > MAX_TEXT or not text.isprintable() or (required and not text):
        least = "1" if required else "0"
        raise InvalidInput(f"hello.{path}: found {text[:80]!r}, allowed are {least} to {MAX_TEXT} printable characters")


def _check_range(path: str, found: int, least: int, most: int) -> None:
    if not least <= found <= most:
        raise InvalidInput(f"hello: {path}: found {found}, allowed is {least} to {most}")
