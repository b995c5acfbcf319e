"""The record on disk: for each unit a file of hashes and a compressed file of full text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import zstandard

from tests.golden.case import Case

RECORD: Final = Path(__file__).with_name("record")

_LEVEL: Final = 19
_CASE: Final = "# "


@dataclass(frozen=True)
class Entry:
    """The record of one case.

    Attributes:
        digest: SHA-256 over its lines.
        chain: The short hash of each line.
    """

    digest: str
    chain: str


@dataclass(frozen=True)
class Unit:
    """The record of one unit: entries of all cases, and by case the lines of those that are recorded in full."""

    entries: dict[str, Entry] = field(default_factory=dict)
    lines: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Archive:
    """A folder with the record, or with a dump that contains every line.

    Attributes:
        folder: The folder.
        whole: Whether all lines are written, also those of cases that the record contains only as hashes.
    """

    folder: Path = RECORD
    whole: bool = False

    def read(self, part: str, unit: str) -> Unit:
        """Read a unit; return an empty one if it does not exist."""
        hashes, text = self._hashes(part, unit), self._text(part, unit)
        entries: dict[str, Any] = json.loads(hashes.read_text(encoding="utf-8")) if hashes.exists() else {}
        lines: dict[str, list[str]] = {}
        case: list[str] = []
        for line in zstandard.decompress(text.read_bytes()).decode().split("\n") if text.exists() else ():
            if line.startswith(_CASE):
                case = lines[line.removeprefix(_CASE)] = []
            elif line:
                case.append(line)
        return Unit({name: Entry(**entry) for name, entry in entries.items()}, lines)

    def write(self, part: str, unit: str, cases: Iterable[Case]) -> None:
        """Write a unit; this replaces an existing one."""
        hashes, text = self._hashes(part, unit), self._text(part, unit)
        hashes.parent.mkdir(parents=True, exist_ok=True)
        entries: list[str] = []
        kept: list[str] = []
        for case in cases:
            entry = {"digest": case.digest, "chain": case.chain}
            entries.append(f" {json.dumps(case.name)}: {json.dumps(entry)}")
            if case.kept or self.whole:
                kept += [f"{_CASE}{case.name}", *case.lines]
        hashes.write_text("{\n" + ",\n".join(entries) + "\n}\n", encoding="utf-8")
        if kept:
            compressor = zstandard.ZstdCompressor(level=3 if self.whole else _LEVEL)
            text.write_bytes(compressor.compress("\n".join(kept).encode()))
        else:
            text.unlink(missing_ok=True)

    def units(self, part: str) -> set[str]:
        """Return the units of a part that exist."""
        return {file.stem for file in (self.folder / part).glob("*.json")}

    def drop(self, part: str, unit: str) -> None:
        """Delete a unit."""
        self._hashes(part, unit).unlink(missing_ok=True)
        self._text(part, unit).unlink(missing_ok=True)

    def _hashes(self, part: str, unit: str) -> Path:
        return self.folder / part / f"{unit}.json"

    def _text(self, part: str, unit: str) -> Path:
        return self.folder / part / f"{unit}.zst"
