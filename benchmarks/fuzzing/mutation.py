"""Changes valid messages a little, so that they pass the first checks of a service and reach the code behind them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from fuzzing.rpc_messages import MessageSource, is_map, is_repeated
from fuzzing.valid_messages import Recordings

_UNCHANGED: Final = 0.1
_BYTES: Final = 0.2
_KNOWN: Final = 0.85
_PIECE: Final = re.compile(r"-?\d+(?:\.\d+)?|[A-Za-z_]+|[^\sA-Za-z0-9_]")
"""A part of a text that can be replaced: a number, a word, or a punctuation mark."""

_PIECES: Final = (
    "", "0", "-1", "1e999", "9" * 40, "NaN", "null", "true", "[]", "{}", "''", '"', "\\", "{", "]", ":", ",", "~", "\0", "x.y:Z", "²",
)  # fmt: skip


class MutationSource:
    """Draws mutations of recorded calls.

    Args:
        values: Draws the new values, and knows the texts that exist in the cluster.
        recordings: The recorded calls.

    Attributes:
        numbers: Numbers that are valid at present (epochs, process ids, ...) by the name of a field; they may be replaced.
    """

    def __init__(self, values: MessageSource, recordings: Recordings) -> None:
        self._values = values
        self._random = values.random
        self._recordings = recordings
        self._request_ids: list[str] = []
        self._elsewhere = False
        self.numbers: Mapping[str, Sequence[int]] = {}

    def draw(self, method: MethodDescriptor, *, elsewhere: bool = False) -> list[bytes]:
        """Return the serialized requests of a call; empty: no call of the method is recorded, or no request is left.

        Ids that exist in the recorded cluster only become ids that exist now; fields of one meaning get the same one. One call of ten
        has no other change. In the others one to three fields of a request change, or bytes of its serialized form. Requests of a
        stream are also left out, repeated and exchanged.

        Args:
            method: The method.
            elsewhere: Whether the call goes to a service that does not have the known ids. It gets new ones.
        """
        self._elsewhere = elsewhere
        calls = self._recordings.get(method.full_name, ())
        if not calls:
            return []
        self._request_ids = [self._random.randbytes(8).hex()]
        messages = [_parsed(method.input_type, data) for data in self._random.choice(calls)]
        present: dict[tuple[int, Any], Any] = {}
        for message in messages:
            self._set_ids(message, present)
        if self._random.random() < _UNCHANGED:
            return [message.SerializeToString() for message in messages]
        if method.client_streaming and self._random.random() < 0.5:
            self._rearrange(messages)
            if not messages or self._random.random() < 0.5:
                return [message.SerializeToString() for message in messages]
        chosen = self._random.randrange(len(messages))
        damaged = self._random.random() < _BYTES
        if not damaged:
            # With three changes, not much would be left of a message with two fields.
            most = min(3, len(messages[chosen].ListFields()) or 1)
            for _ in range(self._random.randint(1, most)):
                self._change(messages[chosen])
        sent = [message.SerializeToString() for message in messages]
        if damaged:
            sent[chosen] = self._damage(sent[chosen])
        return sent

    def _set_ids(self, message: Message, present: dict[tuple[int, Any], Any]) -> None:
        """Replace ids in a message by those in `present`, which gets the missing ones: by the list of what exists, and the old id."""
        for field, held in message.ListFields():
            if is_map(field):
                continue
            if field.message_type is not None:
                for one in held if is_repeated(field) else [held]:
                    self._set_ids(one, present)
            elif is_repeated(field):
                held[:] = [self._id(field, one, present) for one in held]
            else:
                setattr(message, field.name, self._id(field, held, present))

    def _id(self, field: FieldDescriptor, old: Any, present: dict[tuple[int, Any], Any]) -> Any:
        choices: Sequence[Any] = ()
        if field.name == "request_id":
            # With the recorded ids, most calls would be repetitions of a call with other arguments.
            choices = self._request_ids
        elif field.type == FieldDescriptor.TYPE_STRING:
            known = self._values.known
            kind = field.containing_type
            choices = known.get(f"{kind.name}.{field.name}" if kind is not None else "", known.get(field.name, ()))
        elif type(old) is int:
            choices = self.numbers.get(field.name, ())
        if not choices:
            return old
        # Fields with equal meanings have the same list of choices.
        key = id(choices), old
        if key not in present:
            new = self._random.choice(choices)
            if self._elsewhere and isinstance(new, str) and field.name != "sha256":
                new = self._random.randbytes(4).hex()
            present[key] = new if self._random.random() < _KNOWN else old
        return present[key]

    def _rearrange(self, messages: list[Message]) -> None:
        place = self._random.randrange(len(messages))
        match self._random.randrange(4):
            case 0:
                del messages[place]
            case 1:
                messages.insert(place, _copy(messages[place]))
            case 2:
                other = self._random.randrange(len(messages))
                messages[place], messages[other] = messages[other], messages[place]
            case _:
                del messages[place:]

    def _change(self, message: Message) -> None:
        """Change a field of a message or of one within it. All depths are equally likely, as far as the message has them."""
        levels: list[list[Message]] = []
        level = [message]
        while level:
            levels.append(level)
            level = [inner for one in level for inner in _inner(one)]
        parent = self._random.choice(self._random.choice(levels))
        fields: list[Any] = [field for field, _ in parent.ListFields()]
        if not fields or self._random.random() < 0.15:
            fields = list(parent.DESCRIPTOR.fields)
        if fields:
            self._change_field(parent, self._random.choice(fields))

    def _change_field(self, parent: Message, field: FieldDescriptor) -> None:
        held: Any = getattr(parent, field.name)
        if self._random.random() < 0.15:
            parent.ClearField(field.name)
        elif is_map(field) and held and self._random.random() < 0.3:
            del held[self._random.choice(sorted(held))]
        elif is_repeated(field) and not is_map(field) and held and self._random.random() < 0.7:
            self._change_elements(field, held)
        elif isinstance(held, str) and held and field.name not in self._values.known and self._random.random() < 0.5:
            setattr(parent, field.name, self._edited(held))
        else:
            self._values.fill(parent, field, 2)

    def _change_elements(self, field: FieldDescriptor, held: Any) -> None:
        elements = list(held)
        place, other = self._random.randrange(len(elements)), self._random.randrange(len(elements))
        match self._random.randrange(4):
            case 0:
                elements.insert(other, elements[place])
            case 1:
                elements[place], elements[other] = elements[other], elements[place]
            case 2:
                del elements[place]
            case _ if field.message_type is not None:
                elements[place] = self._values.message(field.message_type, 2)
            case _:
                elements[place] = self._values.scalar(field)
        # The elements of a repeated message belong to the field, so copies replace them.
        copies = [_copy(one) if isinstance(one, Message) else one for one in elements]
        del held[:]
        held.extend(copies)

    def _edited(self, text: str) -> str:
        """Return a text in which a number, word or mark is replaced by a hostile one, left out or repeated."""
        found = list(_PIECE.finditer(text))
        if not found:
            return text + self._random.choice(_PIECES)
        piece = self._random.choice(found)
        new = self._random.choice((*_PIECES, piece.group() * 2, self._random.choice(found).group()))
        return text[: piece.start()] + new + text[piece.end() :]

    def _damage(self, data: bytes) -> bytes:
        """Return bytes of which one to three are flipped, inserted or left out."""
        damaged = bytearray(data)
        for _ in range(self._random.randint(1, 3)):
            place = self._random.randrange(len(damaged) + 1)
            match self._random.randrange(3):
                case 0 if place < len(damaged):
                    damaged[place] ^= 1 << self._random.randrange(8)
                case 1:
                    damaged.insert(place, self._random.randrange(256))
                case _:
                    del damaged[place : place + self._random.choice((1, 1, 4))]
        return bytes(damaged)


def _parsed(kind: Descriptor, data: bytes) -> Message:
    message: Message = GetMessageClass(kind)()
    message.ParseFromString(data)
    return message


def _copy(message: Message) -> Message:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _inner(message: Message) -> list[Message]:
    """Return the messages that are values of a message's fields, of lists and of maps."""
    found: list[Message] = []
    for field, held in message.ListFields():
        if field.message_type is None:
            continue
        if is_map(field):
            found += [one for _, one in sorted(held.items()) if isinstance(one, Message)]
        else:
            found += list(held) if is_repeated(field) else [held]
    return found
