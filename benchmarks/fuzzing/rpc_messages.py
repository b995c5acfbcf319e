"""Draws random and hostile protobuf messages and values for any method."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

_DEPTH = 4
_F = FieldDescriptor

_DOUBLES = (0.0, -0.0, 1.0, -1.0, 0.5, math.nan, math.inf, -math.inf, 1e308, 5e-324, 1e18, -1e18)
_INTEGERS = (0, 1, 2, 3, 7, -1, -2, 1000, 1001, 2**31 - 1, -(2**31), 2**31, 2**53, 2**63 - 1, -(2**63))
_TEXTS = (
    "",
    " ",
    "x",
    "0",
    "1",
    "-1",
    "/",
    "..",
    "../../etc/passwd",
    "/etc",
    ".",
    "a/b",
    "\0",
    "\n",
    "\u202e",
    "ü" * 300,
    "NaN",
    "null",
    "[]",
    "{}",
    "[" * 5000,
    '{"a":' * 3000,
    "9" * 5000,
    "~cluster",
    "'; drop table jobs; --",
    "%s%n",
    "²",
    "a" * 64,
    "0" * 64,
    "f" * 63,
    "A" * 64,
    "localhost:1",
    "127.0.0.1:99999",
)
_YAML = (
    "name: x",
    "- 1",
    "a: &a [1, 1]\nb: &b [*a, *a]\nc: [*b, *b]",
    "space: {x: {uniform: [0, 1]}}\ncommand: ['true']\nmetric: {name: m, mode: max}",
    "space: {x: [" + "1," * 3000 + "]}\ncommand: ['true']\nmetric: {name: m, mode: max}",
    "space: {x: {grid: [0, 1, " + "9" * 6000 + "]}}\ncommand: ['true']\nmetric: {name: m, mode: max}",
    "log: {command: ['true'], metrics: {m: '"
    + "(" * 2000
    + "a"
    + ")" * 2000
    + "'}}\nmetric: {name: m, mode: max}\nspace: {x: [1]}",
)


def is_map(field: FieldDescriptor) -> bool:
    """Return whether a field is a map."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def is_repeated(field: FieldDescriptor) -> bool:
    """Return whether a field has any number of values, as maps do, too."""
    return int(getattr(field, "label", 0)) == _F.LABEL_REPEATED


class MessageSource:
    """Draws messages from a seed.

    Args:
        seed: Equal seeds and `known` texts give equal messages.
        known: Texts that exist in the cluster (ids of experiments, jobs, nodes, hashes, ...) by the name of a field; the key "" is for
            all fields, and a key such as "Slot.id" for the mutations of a field of one kind of message.

    Attributes:
        known: The texts, which may be replaced.
        random: The generator of random numbers from the seed, for others who draw what belongs to the same calls.
    """

    def __init__(self, seed: int, known: Mapping[str, Sequence[str]]) -> None:
        self.random: Final = random.Random(seed)
        self.known = known

    def draw(self, kind: Descriptor) -> bytes:
        """Return the bytes of a message, or of something that is no message, for a method whose request is of type `kind`."""
        chance = self.random.random()
        if chance < 0.06:
            return self.random.randbytes(self.random.choice((1, 2, 10, 1000)))
        if chance < 0.08:
            return b"\x0b" * self.random.choice((10, 200, 10_000))  # Groups that are nested too deeply.
        data = self.message(kind).SerializeToString()
        if chance < 0.16 and data:
            place = self.random.randrange(len(data))
            return data[:place] + self.random.randbytes(1) + data[place + self.random.randrange(3) :]
        return data

    def message(self, kind: Descriptor, depth: int = 0) -> Message:
        """Return a message of type `kind` with random fields."""
        message: Message = GetMessageClass(kind)()
        oneofs = {one.name: self.random.choice(one.fields).name for one in kind.oneofs}
        for field in kind.fields:
            oneof = field.containing_oneof
            wanted = oneofs[oneof.name] == field.name if oneof is not None else self.random.random() < 0.8
            if wanted and (field.type != _F.TYPE_MESSAGE or depth < _DEPTH):
                self.fill(message, field, depth)
        return message

    def fill(self, message: Message, field: FieldDescriptor, depth: int = 0) -> None:
        """Set a field of a message to random values. Values are added to a repeated field and to a map."""
        held: Any = getattr(message, field.name)
        entry = field.message_type
        if entry is not None and is_map(field):
            for _ in range(self._count()):
                key = self.scalar(entry.fields_by_name["key"])
                value = entry.fields_by_name["value"]
                if value.type == _F.TYPE_MESSAGE:
                    assert value.message_type is not None
                    held[key].CopyFrom(self.message(value.message_type, depth + 1))
                else:
                    held[key] = self.scalar(value)
        elif is_repeated(field):
            for _ in range(self._count()):
                if entry is not None:
                    held.add().CopyFrom(self.message(entry, depth + 1))
                else:
                    held.append(self.scalar(field))
        elif entry is not None:
            held.CopyFrom(self.message(entry, depth + 1))
        else:
            setattr(message, field.name, self.scalar(field))

    def _count(self) -> int:
        return self.random.choices((0, 1, 2, 1100), (30, 50, 20, 0.3))[0]

    def scalar(self, field: FieldDescriptor) -> Any:
        """Return a random value, often a hostile one, for an element of a field that is no message."""
        choose = self.random.choice
        match field.type:
            case _F.TYPE_DOUBLE | _F.TYPE_FLOAT:
                return choose(_DOUBLES)
            case _F.TYPE_BOOL:
                return self.random.random() < 0.5
            case _F.TYPE_ENUM:
                assert field.enum_type is not None
                return choose([value.number for value in field.enum_type.values] + [99, -1])
            case _F.TYPE_BYTES:
                return self.random.randbytes(choose((0, 1, 100, 70_000)))
            case _F.TYPE_STRING:
                return self._text(field.name)
            case _:
                small = field.type in (_F.TYPE_INT32, _F.TYPE_UINT32, _F.TYPE_SINT32, _F.TYPE_FIXED32)
                unsigned = field.type in (_F.TYPE_UINT32, _F.TYPE_UINT64, _F.TYPE_FIXED32, _F.TYPE_FIXED64)
                allowed = [n for n in _INTEGERS if (not small or -(2**31) <= n < 2**31) and (not unsigned or n >= 0)]
                return choose(allowed)

    def _text(self, name: str) -> str:
        chance = self.random.random()
        own = self.known.get(name, ())
        if own and chance < 0.6:
            return self.random.choice(own)
        if name in ("spec", "spec_json") and chance < 0.9:
            return self.random.choice(_YAML)
        if chance < 0.75 and self.known.get(""):
            return self.random.choice(self.known[""])
        if chance > 0.995:
            return "m" * 1_000_000
        return self.random.choice(_TEXTS)
