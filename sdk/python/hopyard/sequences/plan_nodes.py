"""What a configuration trains, cut where it changes what is in force, with a key for each part: the search plan's nodes.

A node is what is trained from a position on as long as the same functions of the position are in force; its key is a hash
over its parent's key, where it begins, and these functions. So two configurations have their first nodes in common as far as their
sequences are made of the same functions, whatever comes later and whoever trains them. A node has no end: a configuration
leaves it, by another function, anywhere.

Equal keys are equal trainings. Equal trainings may have different keys where one function is written as another (an
exponential of another origin): then they are trained, or looked up, twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hopyard.sequences.base import Sequence
from hopyard.sequences.configuration import values_at
from hopyard.sequences.parse import as_sequence, is_written
from hopyard.sequences.rational import JsonValue, token

LONGEST: Final = 1_000_000
"""Longer trainings are not cut: a sequence may have as many functions."""


@dataclass(frozen=True, slots=True)
class NodeStretch:
    """A configuration's stretch of a node.

    Attributes:
        node: The node's key.
        parent: The key of the one before; empty for the first.
        start: Where the node begins.
        end: Where the configuration leaves it, or is complete.
        values: What is in force at `start`, groups by dotted names.
    """

    node: str
    parent: str
    start: int
    end: int
    values: Mapping[str, Any]


def plan_path(configuration: Mapping[str, Any], until: int, root: str) -> tuple[NodeStretch, ...]:
    """A configuration's way through the search plan, up to a position.

    Args:
        configuration: All hyperparameters.
        until: 1 or more; beyond `LONGEST` there is no way.
        root: What else decides about the training: code, data, seed.
    """
    if not 1 <= until <= LONGEST:
        return ()
    begins: dict[int, dict[str, str]] = {}
    for name, sequence in _flat(configuration, ""):
        for start, said in _parts(sequence, until):
            begins.setdefault(start, {})[name] = said
    starts = sorted({0, *begins})
    found: list[NodeStretch] = []
    force: dict[str, str] = {}
    parent = ""
    for start, end in zip(starts, [*starts[1:], until], strict=True):
        force |= begins.get(start, {})
        text = json.dumps([root, parent, start, force], sort_keys=True, separators=(",", ":"))
        key = hashlib.sha256(text.encode()).hexdigest()
        values = _dotted(values_at(configuration, start), "")
        found.append(NodeStretch(key, parent, start, end, values))
        parent = key
    return tuple(found)


def _parts(sequence: Sequence, until: int) -> list[tuple[int, str]]:
    """Where each function of a sequence begins, and what it is. What counts steps is known by how it is written."""
    if sequence.per_step:
        return [(0, str(token(sequence.written())))]
    return [
        (piece.start, _value(piece.function.value(piece.start)) if piece.function.constant else repr(piece.function))
        for piece in sequence.pieces(until)
    ]


def _value(value: JsonValue) -> str:
    """A value as text, equal for equal ones: 1 and 1.0, not 1 and true."""
    whole = isinstance(value, float) and value.is_integer()
    return str(token(int(value) if whole and isinstance(value, float) else value))


def _flat(given: Mapping[str, Any], group: str) -> list[tuple[str, Sequence]]:
    found: list[tuple[str, Sequence]] = []
    for name, value in given.items():
        if isinstance(value, Mapping) and not is_written(value):
            found += _flat(value, f"{group}{name}.")
        else:
            found.append((f"{group}{name}", as_sequence(value)))
    return found


def _dotted(given: Mapping[str, Any], group: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, Mapping) and not is_written(value):
            found |= _dotted(value, f"{group}{name}.")
        else:
            found[f"{group}{name}"] = value
    return found
