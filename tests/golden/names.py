"""The map between the present names of the code and the canonical names of the record."""

from __future__ import annotations

import functools
import importlib
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

REPOSITORY: Final = Path(__file__).parents[2]
NAMES: Final = Path(__file__).with_name("names.toml")
CLASS_KEYS: Final = frozenset({"is", "kind"})
"""Keys of JSON documents whose values are names of classes."""


class MissingPlaceError(LookupError):
    """None of the places that names.toml lists for a role exists."""


class Names:
    """Translates present names to canonical ones, and finds code and files by their role.

    Args:
        tables: The contents of names.toml.
    """

    def __init__(self, tables: Mapping[str, Any]) -> None:
        self._places: Mapping[str, list[str]] = tables.get("places", {})
        self._paths: Mapping[str, list[str]] = tables.get("paths", {})
        self._classes: Mapping[str, str] = tables.get("classes", {})
        self._fields: Mapping[str, Mapping[str, str]] = tables.get("fields", {})
        self._members: Mapping[str, Mapping[str, str]] = tables.get("members", {})
        self._keys: Mapping[str, str] = tables.get("keys", {})
        self._values: Mapping[str, Mapping[str, str]] = tables.get("values", {})
        ignored = tables.get("ignored", {})
        self._ignored_fields = frozenset(ignored.get("fields", ()))
        self._ignored_keys = frozenset(ignored.get("keys", ()))

    @classmethod
    def load(cls, path: Path = NAMES) -> Names:
        """Read names.toml."""
        return cls(tomllib.loads(path.read_text(encoding="utf-8")))

    def owner(self, role: str) -> tuple[Any, str]:
        """Return the object that contains a role's code, and the name of the attribute that is the code.

        Raises:
            MissingPlaceError: No candidate exists.
        """
        for place in self._places[role]:
            module, _, path = place.partition(":")
            *outer, last = path.split(".")
            try:
                found = functools.reduce(getattr, outer, importlib.import_module(module))
            except (ModuleNotFoundError, AttributeError) as error:
                if isinstance(error, ModuleNotFoundError) and not _part_of(error.name, module):
                    raise
                continue
            if hasattr(found, last):
                return found, last
        raise MissingPlaceError(
            f"{role}: none of {', '.join(self._places[role])} exists; add its new place to [places] in names.toml"
        )

    def find(self, role: str) -> Any:
        """Return the code of a role; raise like `owner`."""
        return getattr(*self.owner(role))

    def path(self, role: str) -> Path:
        """Return a folder or file of the repository by its role.

        Raises:
            MissingPlaceError: No candidate exists.
        """
        for candidate in self._paths[role]:
            if (REPOSITORY / candidate).exists():
                return REPOSITORY / candidate
        raise MissingPlaceError(f"{role}: none of {', '.join(self._paths[role])} exists; add its new place to [paths]")

    def class_name(self, cls: type) -> str:
        """Return the canonical name of a class. An entry with the module takes precedence over one without."""
        plain = self._classes.get(cls.__name__, cls.__name__)
        return self._classes.get(f"{cls.__module__}:{cls.__name__}", plain)

    def fields(self, class_name: str, fields: Collection[str]) -> dict[str, str | None]:
        """Return the canonical names of a class's fields; None for a field that is ignored.

        Args:
            class_name: The canonical name of the class.
            fields: The present names of its fields.
        """
        renamed = applicable(self._fields.get(class_name, {}), fields)
        canonical = {field: renamed.get(field, field) for field in fields}
        return {
            field: None if f"{class_name}.{name}" in self._ignored_fields else name for field, name in canonical.items()
        }

    def member(self, class_name: str, member: str) -> str:
        """Return the canonical name of an enumeration's member."""
        return self._members.get(class_name, {}).get(member, member)

    def value(self, place: str, text: str) -> str:
        """Return the canonical text of a field (`Class.field`) or of a JSON key.

        Under a key whose values are class names, these are translated, too.
        """
        known = self._values.get(place, {})
        if text not in known and place in CLASS_KEYS:
            return self._classes.get(text, text)
        return known.get(text, text)

    def keys(self, keys: Collection[str]) -> dict[str, str]:
        """Return the canonical names of a JSON document's keys, without those that are ignored."""
        renamed = applicable(self._keys, keys) if self._keys else {}
        canonical = {key: renamed.get(key, key) for key in keys}
        return {key: name for key, name in canonical.items() if name not in self._ignored_keys}


def applicable(renames: Mapping[str, str], present: Collection[str]) -> dict[str, str]:
    """Return the renames (new to canonical) that apply to an object with these names.

    Code from before a rename still has the canonical name, so the rename does not apply to it. The same holds for a name that gets
    another meaning: of `stream = "experiment"` and `experiment = "member"` neither applies to an object with the fields
    `experiment` and `member`, and both apply to one with `stream` and `experiment`.
    """

    def applies(new: str, seen: frozenset[str]) -> bool:
        canonical = renames[new]
        if canonical not in present or canonical in seen:
            return True
        return canonical in renames and applies(canonical, seen | {new})

    return {new: old for new, old in renames.items() if new in present and applies(new, frozenset())}


def _part_of(missing: str | None, module: str) -> bool:
    return missing is not None and (module == missing or module.startswith(f"{missing}."))
