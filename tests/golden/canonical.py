"""Canonical text: identical for identical behaviour, independent of names and of the machine.

* A dataclass or named tuple is an object with its canonical class name under "is" and its fields by canonical names.
  Fields that equal their default are left out, so that a new optional field changes nothing.
* An enumeration's member is `Class.MEMBER`. Sets are sorted. Keys are sorted.
* Floats have nine significant digits, large ones three decimals: further digits of numerical libraries differ between builds.
* A value of any other class is refused: its text could contain an address or an order that varies.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Final

from tests.golden.names import Names

DIGITS: Final = 9
LARGE: Final = 1e6

_NONE: Final = object()


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    present: str
    canonical: str
    default: Any


@dataclasses.dataclass(frozen=True, slots=True)
class _Layout:
    name: str
    fields: tuple[_Field, ...]


class Canon:
    """Converts values to their canonical form and text.

    Args:
        names: The map of names.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._layouts: dict[type, _Layout | None] = {}

    def text(self, value: object) -> str:
        """Return the canonical text of a value: one line of JSON."""
        return dump(self.plain(value))

    def plain(self, value: Any) -> Any:
        """Return the canonical form of a value, which contains only JSON types.

        Raises:
            TypeError: The value, or a value in it, has no canonical form.
        """
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, enum.Enum):
            name = self._names.class_name(type(value))
            return f"{name}.{self._names.member(name, value.name)}"
        if isinstance(value, str | int):
            return value
        if isinstance(value, float):
            return rounded(value)
        layout = self._layout(type(value))
        if layout is not None:
            return self._object(layout, value)
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, Set):
            return sorted((self.plain(item) for item in value), key=dump)
        if isinstance(value, Sequence) and not isinstance(value, bytes):
            return [self.plain(item) for item in value]
        if isinstance(value, Path):
            return str(value)
        raise TypeError(f"{type(value).__module__}.{type(value).__name__} has no canonical form")

    def attribute(self, value: object, field: str) -> Any:
        """Return the attribute of an object whose canonical name is `field`.

        Raises:
            AttributeError: The object has no such field.
        """
        layout = self._layout(type(value))
        for one in layout.fields if layout is not None else ():
            if one.canonical == field:
                return getattr(value, one.present)
        raise AttributeError(f"{type(value).__name__} has no field {field}")

    def defaults(self, cls: type) -> dict[str, Any]:
        """Return the canonical name of a dataclass and the canonical defaults of its fields."""
        layout = self._layout(cls)
        if layout is None:
            raise TypeError(f"{cls.__name__} has no fields")
        named = {field.canonical: self.plain(field.default) for field in layout.fields if field.default is not _NONE}
        return {"name": layout.name, "defaults": named}

    def _object(self, layout: _Layout, value: object) -> dict[str, Any]:
        found: dict[str, Any] = {"is": layout.name}
        for field in layout.fields:
            item = getattr(value, field.present)
            if type(item) is type(field.default) and item == field.default:
                continue
            plain = self.plain(item)
            found[field.canonical] = (
                self._names.value(f"{layout.name}.{field.canonical}", plain) if type(plain) is str else plain
            )
        return found

    def _mapping(self, value: Mapping[Any, Any]) -> dict[str, Any]:
        texts = {key if isinstance(key, str) else self.text(key): item for key, item in value.items()}
        found = {}
        for key, name in self._names.keys(texts).items():
            plain = self.plain(texts[key])
            found[name] = self._names.value(name, plain) if type(plain) is str else plain
        return found

    def _layout(self, cls: type) -> _Layout | None:
        if cls not in self._layouts:
            defaults = _defaults(cls)
            layout = None
            if defaults is not None:
                name = self._names.class_name(cls)
                canonical = self._names.fields(name, defaults)
                fields = (_Field(field, other, defaults[field]) for field, other in canonical.items() if other)
                layout = _Layout(name, tuple(fields))
            self._layouts[cls] = layout
        return self._layouts[cls]


def rounded(value: float) -> float | str:
    """Return a float rounded to the significant digits, as text if it is not finite."""
    if not math.isfinite(value):
        return str(value)
    return (round(value, 3) if abs(value) >= LARGE else float(f"{value:.{DIGITS}g}")) + 0.0


def dump(plain: Any) -> str:
    """Return the text of a canonical value."""
    return json.dumps(plain, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _defaults(cls: type) -> dict[str, Any] | None:
    """Return the fields of a dataclass or named tuple with their defaults; None for any other class."""
    if dataclasses.is_dataclass(cls):
        return {field.name: _default(field) for field in dataclasses.fields(cls)}
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        given: Mapping[str, Any] = cls._field_defaults  # type: ignore[attr-defined]
        return {field: given.get(field, _NONE) for field in cls._fields}
    return None


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else _NONE
