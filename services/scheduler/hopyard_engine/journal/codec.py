"""Core events as the JSON of journal records, and back.

Members of a union carry their class name under "is", so that a record can be read by people and by later versions; fields
added later need a default. NaN and infinities are written as JavaScript writes them, which Python reads again.
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
    # Named tuples whose annotations are strings are not resolved by the library.
    converter.register_structure_hook(RunKey, lambda raw, _: RunKey(*raw))
    converter.register_structure_hook(SlotSpec, lambda raw, _: SlotSpec(raw[0], raw[1], tuple(raw[2]), *raw[3:]))
    converter.register_unstructure_hook(Reason, Reason.plain)
    converter.register_structure_hook(Reason, lambda raw, _: Reason.from_plain(raw))
    for union in (RunBody, Command, Call, ClusterEvent, StreamEvent, Event):
        _tag(converter, union)
    return converter


def _tag(converter: Converter, union: Any) -> None:
    """Members of a union carry their names. What a class needs is made when it is met: all at once would take half a second."""
    classes = {cls.__name__: cls for cls in get_args(union)}

    def unstructure(value: Any) -> Any:
        return {**converter.unstructure(value, type(value)), "is": type(value).__name__}

    def structure(raw: Any, _: Any) -> Any:
        return converter.structure(raw, classes[raw["is"]])

    converter.register_unstructure_hook(union, unstructure)
    converter.register_structure_hook(union, structure)


def _exact(raw: Any, cls: type) -> Any:
    if type(raw) is not cls:
        raise TypeError(f"found {raw!r}, needed is {cls.__name__}")
    return raw


def _number(raw: Any, _: type) -> float:
    if type(raw) not in (int, float):
        raise TypeError(f"found {raw!r}, needed is a number")
    return float(raw)


_EVENTS: dict[str, type] = {cls.__name__: cls for cls in get_args(Event)}


def encode(event: Event) -> bytes:
    """An event as a record's payload."""
    return json.dumps(_converter().unstructure(event, type(event)), separators=(",", ":")).encode()


def kind_of(event: Event) -> str:
    """An event's kind, as records name it."""
    return type(event).__name__


def decode(kind: str, payload: bytes) -> Event:
    """The event of a record.

    Raises:
        ValueError: A kind that this version does not know, or a payload that does not fit it.
    """
    cls = _EVENTS.get(kind)
    if cls is None:
        raise ValueError(f"journal record of unknown kind {kind!r}; known are {', '.join(sorted(_EVENTS))}")
    try:
        event: Event = _converter().structure(json.loads(payload), cls)
    except (ForbiddenExtraKeysError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"journal record of kind {kind}: {payload[:200]!r} does not fit: {error}") from error
    return event


def event_of(record: StoredRecord) -> Event:
    """The event of a record as it is stored: the version is checked first, and an older record is upgraded.

    Raises:
        RecordError: The version is not supported, or the record does not fit it.
    """
    present = upgrade(record)
    try:
        return decode(present.kind, present.payload)
    except ValueError as error:
        raise RecordError(record, str(error)) from error
