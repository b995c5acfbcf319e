"""Translates names in recorded journals between canonical and present names.

A journal contains the names of classes and of fields. To stay readable when these are renamed, its events are translated before
they are imported, and back when their rows are compared. The types of the fields determine which name belongs to which class.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import types
import typing
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import zstandard

from tests.golden import product

TAG: Final = "is"
JOURNAL: Final = "journal.jsonl"
MANIFEST: Final = "manifest.json"


class Translation:
    """Translates the JSON of journal records.

    Args:
        to_present: True: from canonical names to present ones; False: from present names to canonical ones.
    """

    def __init__(self, *, to_present: bool) -> None:
        self._to_present = to_present

    def record(self, kind: str, payload: Any) -> tuple[str, Any]:
        """Translate a record's kind and payload. A kind that the code does not define stays unchanged."""
        cls = self._member(product.event_types(), kind)
        return (kind, payload) if cls is None else (self._named(cls), self._value(payload, cls))

    def _value(self, value: Any, hint: Any) -> Any:
        arguments = typing.get_args(hint)
        if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
            return self._choice(value, arguments)
        if isinstance(value, dict):
            if isinstance(hint, type) and dataclasses.is_dataclass(hint):
                return self._object(value, hint)
            inner = arguments[1] if len(arguments) == 2 else Any
            return {key: self._value(item, inner) for key, item in value.items()}
        if isinstance(value, list) and arguments and (len(arguments) == 1 or arguments[-1] is Ellipsis):
            return [self._value(item, arguments[0]) for item in value]
        return value

    def _choice(self, value: Any, options: tuple[Any, ...]) -> Any:
        """Translate a value of one of several types: as the class that it names, otherwise as the only type that matches it."""
        if isinstance(value, dict) and TAG in value:
            cls = self._member(options, value[TAG])
            return value if cls is None else {**self._value(value, cls), TAG: self._named(cls)}
        for option in options:
            if isinstance(value, dict) and dataclasses.is_dataclass(option):
                return self._value(value, option)
            if isinstance(value, dict | list) and typing.get_args(option):
                return self._value(value, option)
        return value

    def _object(self, value: Mapping[str, Any], cls: type) -> dict[str, Any]:
        hints = typing.get_type_hints(cls)
        found = {key: item for key, item in value.items() if key == TAG}
        names = product.NAMES.fields(product.NAMES.class_name(cls), [field.name for field in dataclasses.fields(cls)])
        for present, canonical in names.items():
            source, target = (canonical, present) if self._to_present else (present, canonical)
            if source is not None and target is not None and source in value:
                found[target] = self._value(value[source], hints[present])
        return found

    def _member(self, options: tuple[Any, ...], name: str) -> type | None:
        for cls in options:
            known = product.NAMES.class_name(cls) if self._to_present else cls.__name__
            if known == name:
                found: type = cls
                return found
        return None

    def _named(self, cls: type) -> str:
        return cls.__name__ if self._to_present else product.NAMES.class_name(cls)


def present_archive(source: Path, target: Path) -> Path:
    """Copy an exported experiment, with the names in its journal translated to present ones.

    Args:
        source: The recorded file.
        target: The file to create.

    Returns:
        The copy, or the recorded file if it already has present names.
    """
    translation = Translation(to_present=True)
    recorded, translated = journal(source), []
    for one in recorded:
        kind, payload = translation.record(one["kind"], one["payload"])
        translated.append({**one, "kind": kind, "payload": payload})
    if translated == recorded:
        return source
    text = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in translated).encode()
    packed = zstandard.compress(text)
    with zipfile.ZipFile(source) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(members[MANIFEST])
    digest = hashlib.sha256(packed).hexdigest()
    manifest["members"][JOURNAL] = {"sha256": digest, "packed_bytes": len(packed), "size_bytes": len(text)}
    members |= {f"{JOURNAL}.zst": packed, MANIFEST: json.dumps(manifest).encode()}
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return target


def journal(archive: Path) -> list[dict[str, Any]]:
    """Return the records in the journal of an exported experiment."""
    with zipfile.ZipFile(archive) as members:
        packed = members.read(f"{JOURNAL}.zst")
    with zstandard.ZstdDecompressor().stream_reader(packed) as reader:
        return [json.loads(line) for line in reader.read().splitlines()]
