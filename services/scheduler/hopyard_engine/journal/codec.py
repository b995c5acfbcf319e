"""The codec of the journal: converts core events to JSON payloads of records and back.

Members of a union have their class name under "is", so that people and later versions can read a record. Fields that are added later
need a default. NaN and infinities are written as in JavaScript (`NaN`, `Infinity`), which Python's parser accepts.
"""

from __future__ import annotations

import functools
import json
from typing import Any, get_args

from cattrs import Converter
from cattrs.errors import ForbiddenExtraKeysError

from hopyard.policy.vocabulary import Call, Command, Reason, RunKey
from hopyard_engine.core.events import ClusterEvent, Event, RunBody, StreamEvent
from hopyard_engine.core.types import SlotSpec
from hopyard_engine.journal.format import RecordError, StoredRecord, upgrade


@functools.cache
def _converter() -> Converter:
    converter = Converter(omit_if_default=True, detailed_validation=False)
    for exact in (int, str, bool):
        converter.register_structure_hook(exact, _exact)
    converter.register_structure_hook(float, _number)
    # cattrs does not resolve named tuples whose annotations are strings.
    converter.register_structure_hook(RunKey, lambda raw, _: RunKey(*raw))
    converter.register_structure_hook(SlotSpec, lambda raw, _: SlotSpec(raw[0], raw[1], tuple(raw[2]), *raw[3:]))
    converter.register_unstructure_hook(Reason, Reason.plain)
    converter.register_structure_hook(Reason, lambda raw, _: Reason.from_plain(raw))
    for union in (RunBody, Command, Call, ClusterEvent, StreamEvent, Event):
        _tag(converter, union)
    return converter


def _tag(converter: Converter, union: Any) -> None:
    """Register conversion hooks for a union, which add the class name of the value under "is".

    cattrs creates the converter of each class on first use, because the creation of all of them would delay the start by half a
    second.
    """
    classes = {cls.__name__: cls for cls in get_args(union)}

    def unstructure(value: Any) -> Any:
        return {**converter.unstructure(value, type(value)), "is": type(value).__name__}

    def structure(raw: Any, _: Any) -> Any:
        return converter.structure(raw, classes[raw["is"]])

    converter.register_unstructure_hook(union, unstructure)
    converter.register_structure_hook(union, structure)


def _exact(raw: Any, cls: type) -> Any:
    if type(raw) is not cls:
        raise TypeError(f"found {raw!r:.80}, needed is {cls.__name__}")
    return raw


def _number(raw: Any, _: type) -> float:
    if type(raw) not in (int, float):
        raise TypeError(f"found {raw!r:.80}, needed is a number")
    return float(raw)


_EVENTS: dict[str, type] = {cls.__name__: cls for cls in get_args(Event)}


def encode(event: Event) -> bytes:
    """Return the JSON payload of a journal record for an event."""
    return json.dumps(_converter().unstructure(event, type(event)), separators=(",", ":")).encode()


def kind_of(event: Event) -> str:
    """Return the kind of an event that its journal record contains: its class name."""
    return type(event).__name__


def decode(kind: str, payload: bytes) -> Event:
    """Return the event of a journal record.

    Args:
        kind: The kind of the record (`kind_of`).
        payload: The JSON payload of the record.

    Raises:
        ValueError: The kind is unknown, or the payload does not match it.
    """
    cls = _EVENTS.get(kind)
    if cls is None:
        raise ValueError(f"journal record of unknown kind {kind!r:.80}; known are {', '.join(sorted(_EVENTS))}")
    try:
        event: Event = _converter().structure(json.loads(payload), cls)
    except (ForbiddenExtraKeysError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"journal record of kind {kind}: {payload[:200]!r} does not fit: {error!s:.200}") from error
    return event


def event_of(record: StoredRecord) -> Event:
    """Return the event of a stored record, which may have an older version of the format.

    Raises:
        RecordError: The version of the format is not supported, the kind is unknown, or the payload does not match the kind.
    """
    present = upgrade(record)
    try:
        return decode(present.kind, present.payload)
    except ValueError as error:
        raise RecordError(record, str(error)) from error
