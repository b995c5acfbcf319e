"""Compares cases with the record and formats the differences."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.golden.archive import Entry, Unit
from tests.golden.canonical import dump
from tests.golden.case import MARK, Case, mark

MOST_CHANGES: Final = 12
"""The most differences of one step that are shown."""

MOST_TEXT: Final = 4000
"""The most characters of a step's full text that are shown."""


@dataclass(frozen=True)
class Difference:
    """A difference between a case and its record.

    Attributes:
        case: `part/case`.
        summary: How much differs, in one line.
        step: Number of the first step that differs, counted from 1; 0: no step can be named.
        title: The type, stream and time of that step.
        changes: The differences in it, field by field; empty if the record contains only its hash.
        text: Its full text now.
    """

    case: str
    summary: str
    step: int = 0
    title: str = ""
    changes: tuple[str, ...] = ()
    text: str = ""

    def __str__(self) -> str:
        lines = [f"{self.case}: {self.summary}"]
        if self.title:
            lines.append(f"  step {self.step}: {self.title}")
        lines += [f"    {change}" for change in self.changes]
        if self.text and not self.changes:
            lines.append(
                "    The record has only the hash of this step. For the fields, run on the commit before the change"
            )
            lines.append(
                "    `python -m tests.golden dump DIR`, and here `python -m tests.golden --against DIR`. It is now:"
            )
        if self.text:
            cut = self.text if len(self.text) <= MOST_TEXT else f"{self.text[:MOST_TEXT]} ..."
            lines.append(f"    now: {cut}")
        return "\n".join(lines)


def compare(part: str, cases: Sequence[Case], record: Unit, older: Unit) -> list[Difference]:
    """Compare the cases of a unit with the record, and return the differences.

    Args:
        part: The part's name.
        cases: The present behaviour.
        record: The recorded behaviour.
        older: A dump of the recorded behaviour, which may contain lines that the record lacks.
    """
    found = []
    for case in cases:
        entry = record.entries.get(case.name)
        name = f"{part}/{case.name}"
        if entry is None:
            found.append(Difference(name, f"not in the record ({len(case.lines)} steps)"))
        elif entry.digest != case.digest:
            dumped = older.lines.get(case.name)
            if dumped is not None and Case(case.name, dumped).digest != entry.digest:
                dumped = None  # The dump was made from another commit than the record.
            known = record.lines.get(case.name) or dumped
            found.append(_difference(name, case, entry, known))
    missing = record.entries.keys() - {case.name for case in cases}
    found += [Difference(f"{part}/{name}", "in the record, but not run any more") for name in sorted(missing)]
    return found


def _difference(name: str, case: Case, entry: Entry, known: Sequence[str] | None) -> Difference:
    then = [entry.chain[at : at + MARK] for at in range(0, len(entry.chain), MARK)]
    now = [mark(line) for line in case.lines]
    pairs = zip(then, now, strict=False)
    first = next((at for at, (old, new) in enumerate(pairs) if old != new), min(len(then), len(now)))
    unequal = sum(old != new for old, new in zip(then, now, strict=False)) + abs(len(then) - len(now))
    counts = f"{len(now)} steps" if len(now) == len(then) else f"{len(now)} steps, {len(then)} in the record"
    summary = f"{unequal} differ of {counts}; the first one that differs:"
    if first >= len(now):
        assert first < len(then), f"{name}: equal steps, different digests"
        gone = title(json.loads(known[first])) if known is not None else "its text is not in the record"
        return Difference(name, summary, first + 1, f"missing now; it was: {gone}")
    step = json.loads(case.lines[first])
    if known is None or first >= len(known):
        added = first >= len(then)
        what = f"{title(step)}, which the record does not have" if added else title(step)
        return Difference(
            name, summary, first + 1, what, ("the case ended before this step",) if added else (), case.lines[first]
        )
    changes = tuple(_changes("", json.loads(known[first]), step))
    more = len(changes) - MOST_CHANGES
    shown = (*changes[:MOST_CHANGES], f"... and {more} more") if more > 0 else changes
    return Difference(name, summary, first + 1, title(step), shown, case.lines[first])


def title(step: dict[str, Any]) -> str:
    """Return the title of a step: an event by its type, stream and time, anything else by its name."""
    event = step.get("event")
    if not isinstance(event, dict):
        return str(step.get("name", "the outcome"))
    words = [str(event.get("is"))]
    if isinstance(body := event.get("body"), dict):
        words.append(f"({body.get('is')})")
    words.append(f"of stream {step.get('stream') or event.get('experiment', 'cluster')}")
    words += [f"{key} {event[key]}" for key in ("job", "node") if key in event]
    words.append(f"at {event.get('at')}")
    return " ".join(words)


def _changes(path: str, then: Any, now: Any) -> Iterator[str]:
    """Yield each difference between two canonical values, with its path."""
    if then == now and type(then) is type(now):
        return
    if isinstance(then, dict) and isinstance(now, dict) and then.get("is") == now.get("is"):
        for key in sorted(then.keys() | now.keys()):
            where = f"{path}.{key}" if path else key
            if key not in now:
                yield f"{where} was {_short(then[key])}, is gone or at its default"
            elif key not in then:
                yield f"{where} was absent or at its default, is {_short(now[key])}"
            else:
                yield from _changes(where, then[key], now[key])
    elif isinstance(then, list) and isinstance(now, list):
        yield from _list_changes(path, then, now)
    else:
        yield f"{path} was {_short(then)}, is {_short(now)}"


def _list_changes(path: str, then: list[Any], now: list[Any]) -> Iterator[str]:
    matcher = difflib.SequenceMatcher(None, [dump(one) for one in then], [dump(one) for one in now], autojunk=False)
    for operation, old, old_end, new, new_end in matcher.get_opcodes():
        if operation == "equal":
            continue
        both = min(old_end - old, new_end - new)
        for offset in range(both):
            yield from _changes(f"{path}[{new + offset}]", then[old + offset], now[new + offset])
        for at in range(old + both, old_end):
            yield f"{path}[{at}] was {_short(then[at])}, is gone"
        for at in range(new + both, new_end):
            yield f"{path}[{at}] is new: {_short(now[at])}"


def _short(value: Any) -> str:
    text = dump(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
