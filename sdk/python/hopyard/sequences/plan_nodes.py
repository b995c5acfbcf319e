"""Divides the training of a configuration into the nodes of the search plan.

A node represents the training from a start position on while the same functions of the position determine the values of
all hyperparameters. Its key is a hash of the key of the preceding node, its start, and these functions. Two
configurations share their first nodes up to the position where their sequences have different functions, in whichever
experiments they are trained. A node has no fixed end: a configuration can leave it at any position for another
function.

Equal keys mean equal trainings. Equal trainings can have different keys if a function is written in another form, such
as an exponential with another origin. The training is then not shared.
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
"""Maximum length, in units, of a training that is divided into nodes: a sequence can have one function per unit."""


@dataclass(frozen=True, slots=True)
class NodeStretch:
    """The part of a node of the search plan that one configuration uses.

    Attributes:
        node: Key of the node.
        parent: Key of the preceding node; empty for the first node.
        start: Start position of the node.
        end: Position at which the configuration leaves the node or is complete (exclusive).
        values: The hyperparameter values at `start`, by name. Names in groups are joined by dots.
    """

    node: str
    parent: str
    start: int
    end: int
    values: Mapping[str, Any]


def plan_path(configuration: Mapping[str, Any], until: int, root: str) -> tuple[NodeStretch, ...]:
    """Return the nodes that a configuration uses in the search plan from position 0 to `until`, in order of training.

    Args:
        configuration: All hyperparameters: JSON values and sequences in written form by name, with nested groups.
        until: The end of the last node (exclusive), 1 to `LONGEST` (of this module); for any other value the result is empty.
        root: All other inputs of the training (code, data, seed), as a text.

    Raises:
        SequenceError: A sequence is invalid.
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
    """Return the start position of each function of a sequence, with a text that identifies the function.

    A sequence that counts optimizer steps has one entry, with its written form as the text.

    Args:
        sequence: The sequence.
        until: The position before which the functions start.
    """
    if sequence.per_step:
        return [(0, str(token(sequence.written())))]
    return [
        (piece.start, _value(piece.function.value(piece.start)) if piece.function.constant else repr(piece.function))
        for piece in sequence.pieces(until)
    ]


def _value(value: JsonValue) -> str:
    """Return a JSON value as text. Equal values have equal texts: 1 and 1.0 are equal, 1 and true are not."""
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
