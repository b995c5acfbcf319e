"""Damages rows of the SQLite database of a cluster, and mends them."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from damage_cases.plan import flipped
from damage_cases.specs import CHAIN, ENDED, TREE

Value = tuple[str, object]
"""The type of a value in SQLite, and the value; texts are bytes, because damaged ones need not be UTF-8."""

Row = dict[str, Value]
Image = dict[tuple[Value, ...], Row]
"""The rows of a table by their primary keys."""

STATE_TABLES: Final = ("experiments", "jobs", "statistics", "streams", "blobs", "blob_owners", "clusters", "epochs")
"""The tables of which "rows" chooses one."""


class RowDamage:
    """The damage of rows of one table.

    Args:
        database: The database, which no process uses, or which a cluster uses in WAL mode.
        ids: Ids of the experiments by name.
        where: The kind, of `plan.ROWS`, or "journal" or "rows" for a flipped bit.
        damage: Of `plan.ROW_DAMAGES`, or "flip".
        chance: Random numbers that choose a row, and the place in it.

    Attributes:
        text: What was damaged, after `apply`.
    """

    def __init__(
        self, database: Path, ids: Mapping[str, str], where: str, damage: str, chance: Sequence[float]
    ) -> None:
        self._database = database
        self._ids = ids
        self._where = where
        self._damage = damage
        self._chance = chance
        self._table = ""
        self._before: Image = {}
        self._after: Image = {}
        self.text = ""

    def apply(self) -> None:
        """Damage the rows."""
        with _opened(self._database) as connection:
            self._table, column, value = self._place(connection)
            self._before = _image(connection, self._table)
            rows = _chosen(connection, self._table, column, value)
            if not rows:
                raise LookupError(f"the cluster has no row of the kind {self._where!r}")
            at = int(self._chance[1] * len(rows)) if self._damage == "flip" else (len(rows) - 1) // 2
            if self._damage == "flip":
                what = _flip(connection, self._table, rows[at], self._chance[2])
            else:
                what = _OPERATIONS[self._damage](connection, self._table, rows, at)
            self._after = _image(connection, self._table)
            self.text = f"{self._damage}: {self._table}, {what}"

    def undo(self) -> None:
        """Put back the damaged rows. Rows that were written again after the damage stay."""
        with _opened(self._database) as connection:
            now = _image(connection, self._table)
            keys = [key for key in {**self._before, **self._after} if self._before.get(key) != self._after.get(key)]
            mended = [key for key in keys if now.get(key) == self._after.get(key)]
            for key in mended:
                _delete(connection, self._table, key)
            for key in mended:
                if key in self._before:
                    _insert(connection, self._table, self._before[key])

    def _place(self, connection: sqlite3.Connection) -> tuple[str, str, str]:
        """Return the table, and the column and value that select its rows; an empty column selects all."""
        ended = self._where.endswith("of an ended experiment")
        experiment = self._ids[ENDED if ended else CHAIN]
        table = self._where.partition(" ")[0]
        match table, self._damage:
            case "rows", _:
                return STATE_TABLES[int(self._chance[0] * len(STATE_TABLES))], "", ""
            case "journal", "flip":
                streams = ("cluster", *(self._ids[name] for name in (CHAIN, CHAIN, TREE, ENDED)))
                return "journal", "stream", streams[int(self._chance[0] * len(streams))]
            case "journal", _:
                return "journal", "stream", "cluster" if self._where.endswith("cluster") else experiment
            case "experiments", _:
                return "experiments", "", ""
            case _:
                return table, "experiment", experiment


@contextmanager
def _opened(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        connection.text_factory = bytes
        yield connection


def _columns(connection: sqlite3.Connection, table: str) -> tuple[list[str], list[str]]:
    """Return the names of all columns of a table, and those of its primary key."""
    found = connection.execute(f"PRAGMA table_info({table})").fetchall()
    return [one[1].decode() for one in found], [one[1].decode() for one in sorted(found, key=lambda x: x[5]) if one[5]]


def _rows(connection: sqlite3.Connection, table: str, rest: str = "", given: Sequence[object] = ()) -> list[Row]:
    columns, _ = _columns(connection, table)
    values = ", ".join(f'typeof("{name}"), "{name}"' for name in columns)
    found = connection.execute(f'SELECT {values} FROM "{table}" {rest}', given).fetchall()  # noqa: S608 - own names
    return [
        {name: (row[2 * index].decode(), row[2 * index + 1]) for index, name in enumerate(columns)} for row in found
    ]


def _image(connection: sqlite3.Connection, table: str) -> Image:
    _, keys = _columns(connection, table)
    return {tuple(row[key] for key in keys): row for row in _rows(connection, table)}


def _chosen(connection: sqlite3.Connection, table: str, column: str, value: str) -> list[Row]:
    _, keys = _columns(connection, table)
    order = "ORDER BY " + ", ".join(f'"{key}"' for key in keys)
    return _rows(connection, table, f'WHERE "{column}" = ? {order}' if column else order, (value,) if column else ())


def _key(connection: sqlite3.Connection, table: str, row: Row) -> tuple[Value, ...]:
    return tuple(row[key] for key in _columns(connection, table)[1])


def _holder(kind: str) -> str:
    return "CAST(? AS TEXT)" if kind == "text" else "?"


def _delete(connection: sqlite3.Connection, table: str, key: tuple[Value, ...]) -> None:
    _, keys = _columns(connection, table)
    where = " AND ".join(f'"{name}" = {_holder(kind)}' for name, (kind, _) in zip(keys, key, strict=True))
    connection.execute(f'DELETE FROM "{table}" WHERE {where}', [value for _, value in key])  # noqa: S608 - own names


def _insert(connection: sqlite3.Connection, table: str, row: Row) -> None:
    names = ", ".join(f'"{name}"' for name in row)
    holders = ", ".join(_holder(kind) for kind, _ in row.values())
    values = [value for _, value in row.values()]
    connection.execute(f'INSERT INTO "{table}" ({names}) VALUES ({holders})', values)  # noqa: S608 - own names


def _replace(connection: sqlite3.Connection, table: str, old: Row, new: Row) -> None:
    _delete(connection, table, _key(connection, table, old))
    _insert(connection, table, new)


def _flip(connection: sqlite3.Connection, table: str, row: Row, chance: float) -> str:
    """Flip a bit of one value; of the next column if the row would then have the key of another one."""
    names = [name for name, (kind, _) in row.items() if kind != "null"]
    first = int(chance * len(names))
    for name in names[first:] + names[:first]:
        changed = dict(row) | {name: _flipped(row[name], chance * len(names) % 1.0)}
        connection.execute("SAVEPOINT flip")
        try:
            _replace(connection, table, row, changed)
        except sqlite3.IntegrityError:
            connection.execute("ROLLBACK TO flip")
            continue
        return f"{name} of {_named(connection, table, row)}"
    raise LookupError(f"no value of {table} can be changed")


def _flipped(value: Value, chance: float) -> Value:
    kind, content = value
    match content:
        case bytes():
            return kind, flipped(content, chance)
        case float():
            return kind, struct.unpack("<d", flipped(struct.pack("<d", content), chance))[0]
        case int():
            return kind, content ^ 1 << int(chance * 16)
        case _:
            raise TypeError(kind)


def _removed(connection: sqlite3.Connection, table: str, rows: list[Row], at: int) -> str:
    _delete(connection, table, _key(connection, table, rows[at]))
    return _named(connection, table, rows[at])


def _swapped(connection: sqlite3.Connection, table: str, rows: list[Row], at: int) -> str:
    """Exchange everything but the keys of two neighbours."""
    if len(rows) < 2:
        raise LookupError(f"{table} has only one row")
    first, second = rows[at : at + 2] if at + 1 < len(rows) else (rows[at - 1], rows[at])
    _, keys = _columns(connection, table)
    unique = (*keys, *(("experiment", "job", "position", "part") if table == "statistics" else ()))
    for old, other in ((first, second), (second, first)):
        _replace(connection, table, old, {**other, **{key: old[key] for key in unique}})
    return f"{_named(connection, table, first)} and {_named(connection, table, second)}"


def _doubled(connection: sqlite3.Connection, table: str, rows: list[Row], at: int) -> str:
    """Insert a row again; the records of the journal after it move by one position."""
    row = rows[at]
    match table:
        case "journal":
            for later in reversed(rows[at + 1 :]):
                _replace(connection, table, later, {**later, "position": _moved(later["position"])})
            _insert(connection, table, {**row, "position": _moved(row["position"])})
        case "statistics":
            _insert(connection, table, {**row, "row": ("null", None), "part": ("text", b"again")})
        case _:
            _, value = row["id"]
            assert isinstance(value, bytes)
            _insert(connection, table, {**row, "id": ("text", value + b"9")})
    return _named(connection, table, row)


def _changed(connection: sqlite3.Connection, table: str, rows: list[Row], at: int) -> str:
    """Change the last digit in the content of a row, or a bit in its middle if there is none."""
    name = {"journal": "payload", "statistics": "metrics"}.get(table, "message")
    row = rows[at]
    kind, content = row[name]
    assert isinstance(content, bytes)
    digits = [index for index, byte in enumerate(content) if byte in b"0123456789"]
    place = digits[-1] if digits else len(content) // 2
    changed = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
    _replace(connection, table, row, {**row, name: (kind, changed)})
    return f"byte {place} of {name} of {_named(connection, table, row)}"


def _moved(value: Value) -> Value:
    kind, position = value
    assert isinstance(position, int)
    return kind, position + 1


def _named(connection: sqlite3.Connection, table: str, row: Row) -> str:
    values = [value for _, value in _key(connection, table, row)]
    return " ".join(value.decode(errors="replace") if isinstance(value, bytes) else str(value) for value in values)


_OPERATIONS: Final = {"removed": _removed, "swapped": _swapped, "doubled": _doubled, "changed": _changed}
