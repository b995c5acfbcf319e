"""Tests that each enum value and each RPC of the protos consists of words that docs/glossary.md uses.

`ReasonCode` is excluded: docs/reasons.md defines each of its values.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Final

import pytest
from google.protobuf.descriptor import FileDescriptor

import hopyard.v1
from tests.docs.pages import ROOT

PLAIN: Final = frozenset(
    (
        "append",
        "attach",
        "begin",
        "close",
        "collect",
        "create",
        "drive",
        "drop",
        "extend",
        "fetch",
        "get",
        "import",
        "join",
        "keep",
        "list",
        "load",
        "nothing",
        "open",
        "put",
        "query",
        "read",
        "register",
        "release",
        "resume",
        "serve",
        "set",
        "start",
        "status",
        "stop",
        "stream",
        "sweep",
        "unspecified",
        "update",
        "validate",
        "watch",
    )
)
"""Verbs of RPCs, and values that are no terms of the domain."""

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z]*|[a-z]+")


def _files() -> Iterator[FileDescriptor]:
    for module in pkgutil.iter_modules(hopyard.v1.__path__):
        if module.name.endswith("_pb2"):
            yield importlib.import_module(f"hopyard.v1.{module.name}").DESCRIPTOR


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def names() -> list[str]:
    """Return the names of the RPCs, and of the enum values without the prefix of their enum."""
    found = []
    for file in _files():
        messages = list(file.message_types_by_name.values())
        enums = list(file.enum_types_by_name.values())
        while messages:
            message = messages.pop()
            messages += message.nested_types
            enums += message.enum_types
        for enum in enums:
            if enum.name != "ReasonCode":
                found += [value.name.removeprefix(f"{_snake(enum.name)}_") for value in enum.values]
        for service in file.services_by_name.values():
            found += [method.name for method in service.methods]
    return sorted(set(found))


def words(name: str) -> list[str]:
    """Return the words of a name in snake case or camel case, in lower case."""
    return [word.lower() for part in name.split("_") for word in _WORD.findall(part)]


def stem(word: str) -> str:
    """Return a word without the endings of a plural or of a verb."""
    for ending in ("ies", "ing", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending) + ("y" if ending == "ies" else "")
    return word


def unknown(name: str, glossary: str) -> list[str]:
    """Return the words of a name that are neither in the glossary nor in the list of plain verbs."""
    known = {stem(word.lower()) for word in re.findall(r"[A-Za-z]+", glossary)} | {stem(word) for word in PLAIN}
    return [word for word in words(name) if stem(word) not in known]


@pytest.mark.parametrize("name", names())
def test_names_of_the_contracts_are_words_of_the_glossary(name: str) -> None:
    assert not unknown(name, (ROOT / "docs/glossary.md").read_text())


def test_a_word_that_is_not_in_the_glossary_is_found() -> None:
    assert unknown("ReserveGadget", "**Slot.** Reserve one.") == ["gadget"]
    assert unknown("JOBS_EVICTED", "A job; eviction of snapshots, evict.") == []
