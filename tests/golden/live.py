"""Cases from the recorded journals: their import, their replay, their rows in AppStat, and commands that read them."""

from __future__ import annotations

import json
import re
import sqlite3
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import numpy
import yaml
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from hopyard.v1.experiment_pb2 import Experiment, Job
from tests.golden import cluster, journals, product
from tests.golden.canonical import dump
from tests.golden.case import Case, Part
from tests.golden.translation import Translation, present_archive

COMMANDS: Final = Path(__file__).with_name("commands.toml")
DATABASE: Final = "appstat.sqlite"

TABLES_LEFT_OUT: Final = frozenset({"alembic_version", "sqlite_sequence", "epochs"})
"""Tables that the database or a run needs internally: its version, its counters, and the epochs of schedulers."""

COLUMNS_LEFT_OUT: Final = frozenset({"blobs.created_at"})

LOCAL: Final = ("plan ", "simulate ", "plugins", "data split ")
"""Commands that need no cluster."""

_MESSAGE: Final = "message"
_MESSAGES: Final[dict[str, type[Message]]] = {"experiments": Experiment, "jobs": Job}
"""The types of the messages in the column `message`, by table."""

_TRANSLATED: Final = "translated"
_JOURNAL: Final = "journal"
_PLACES: Final = (
    (re.compile(r"\b127\.0\.0\.1:\d+"), "(address)"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "(id)"),
    (re.compile(r"\b\d+(\.\d+)? (seconds?|s|minutes?|hours?|days?) ago\b"), "(age)"),
)


def units() -> list[str]:
    """Return one unit: all journals are imported into one cluster."""
    return ["journals"]


def cases(unit: str) -> Iterator[Case]:
    """Import the recorded journals into a new cluster, dump its rows, and run the commands of commands.toml."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        plain = Plain(folder)
        with cluster.up(folder / "cluster", agents=0) as server:
            (folder / _TRANSLATED).mkdir()
            files = [present_archive(file, folder / _TRANSLATED / file.name) for file in journals.recorded().values()]
            imports = [_run(f"import {file}", server, plain) for file in files]
            yield Case("imports", imports)
            yield from rows(folder / "cluster" / DATABASE, plain)
            yield from commands(folder, server, plain)


class Plain:
    """Normalizes JSON documents: replaces times, folders, addresses and random ids by placeholders.

    Times during the run become `(now)`, and the folder of the run becomes `(folder)`; addresses and random ids have similar
    placeholders.

    Args:
        folder: The folder of the run, which begins when this object is constructed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._begun = time.time() - 1.0

    def of(self, value: Any, left_out: Sequence[str] = ()) -> Any:
        """Return the canonical document without the keys in `left_out`."""
        if isinstance(value, dict):
            kept = {key: self.of(item, left_out) for key, item in value.items() if key not in left_out}
            return product.CANON.plain(kept)
        if isinstance(value, list):
            return [self.of(item, left_out) for item in value]
        if isinstance(value, int | float) and self._begun <= value <= time.time() + 1.0:
            return "(now)"
        return self._text(value) if isinstance(value, str) else product.CANON.plain(value)

    def _text(self, text: str) -> str:
        for place in (f"{self._folder}/{_TRANSLATED}", self._folder, str(journals.FOLDER)):
            text = text.replace(place, "(folder)")
        for pattern, word in _PLACES:
            text = pattern.sub(word, text)
        return text


def rows(database: Path, plain: Plain) -> Iterator[Case]:
    """Yield the rows of a database: a case for each stream of the journal, and one for each other table."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        tables = [str(row[0]) for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        canonical = product.NAMES.keys(tables)
        for table, name in sorted(canonical.items(), key=lambda item: item[1]):
            if name in TABLES_LEFT_OUT:
                continue
            found = [_row(name, row, plain) for row in connection.execute(f'SELECT * FROM "{table}"')]
            if name == _JOURNAL:
                yield from _streams(found, plain)
            else:
                yield Case(f"rows {name}", sorted(dump({"name": _title(name, row), "row": row}) for row in found))


def commands(folder: Path, server: str, plain: Plain) -> Iterator[Case]:
    """Run the commands of commands.toml; yield a case for each command, with a step for each of its calls."""
    _inputs(folder)
    table = tomllib.loads(COMMANDS.read_text(encoding="utf-8"))
    found: dict[str, list[str]] = {}
    for entry in table["command"]:
        for arguments in _calls(entry["arguments"], table["halving"]):
            words = arguments.split()[0]
            line = _run(arguments.replace("{folder}", str(folder)), server, plain, entry.get("left_out", ()))
            found.setdefault(words, []).append(line)
    for name, lines in found.items():
        yield Case(f"hopyard {name}", lines)


def _calls(arguments: str, halving: Sequence[str]) -> list[str]:
    for word, names in (("{policy}", list(journals.recorded())), ("{halving}", halving)):
        if word in arguments:
            return [arguments.replace(word, name) for name in names]
    return [arguments]


def _run(arguments: str, server: str, plain: Plain, left_out: Sequence[str] = ()) -> str:
    """Run a command with `--json` and return one line with its document or its error messages."""
    local = arguments.startswith(LOCAL)
    code, out, err = product.command(*arguments.split(), "--json", *(() if local else ("--server", server)))
    step: dict[str, Any] = {"name": plain.of(f"hopyard {arguments}"), "exit": code}
    if out:
        step["document"] = plain.of(json.loads(out), left_out)
    if code:
        step["messages"] = plain.of(err)
    return dump(step)


def _row(table: str, row: sqlite3.Row, plain: Plain) -> dict[str, Any]:
    if table == _JOURNAL:
        return _record(row)
    names = product.NAMES.keys(row.keys())
    kept = {name: row[column] for column, name in names.items() if f"{table}.{name}" not in COLUMNS_LEFT_OUT}
    return {name: plain.of(_parsed(table, name, value)) for name, value in kept.items()}


def _parsed(table: str, column: str, value: Any) -> Any:
    """Return a value of a column; JSON and serialized messages are parsed."""
    if column == _MESSAGE:
        return MessageToDict(_MESSAGES[table].FromString(value))
    text = value.decode() if isinstance(value, bytes) else value
    return json.loads(text) if isinstance(text, str) and text[:1] in ("{", "[") else text


def _record(row: sqlite3.Row) -> dict[str, Any]:
    """Return a row of the journal, with canonical names."""
    found = {name: row[column] for column, name in product.NAMES.keys(row.keys()).items()}
    kind, payload = Translation(to_present=False).record(found["kind"], json.loads(found["payload"]))
    return {**found, "kind": kind, "payload": payload}


def _streams(journal: Sequence[dict[str, Any]], plain: Plain) -> Iterator[Case]:
    """Yield a case with the rows of each stream of the journal."""
    streams: dict[str, list[dict[str, Any]]] = {}
    for row in journal:
        streams.setdefault(row["stream"], []).append(row)
    for stream in sorted(streams):
        lines = []
        for row in sorted(streams[stream], key=lambda one: int(one["position"])):
            event = {**row["payload"], "is": row["kind"]}
            step = {"stream": stream, "position": row["position"], "at": row["at"], "event": event}
            lines.append(dump(plain.of(step)))
        yield Case(f"journal {stream}", lines)


def _title(table: str, row: dict[str, Any]) -> str:
    return " ".join([table, *(str(value) for value in list(row.values())[:2])])


def _inputs(folder: Path) -> None:
    """Write the input files of commands: an experiment with sequences in its space, and data."""
    numpy.savez(folder / "numbers.npz", x=numpy.arange(8.0), y=numpy.arange(8))
    changes = journals.CHANGES["stage_tree"]
    terms = {"name": "planned", **journals.COMMON, **changes}
    (folder / "experiment.yaml").write_text(yaml.safe_dump(terms, sort_keys=False), encoding="utf-8")
    (folder / "train.py").write_bytes((journals.PROGRAMS / "train.py").read_bytes())


PART: Final = Part("live", "recorded live journals: imports, replays, rows of AppStat, commands", units, cases)
