"""Tests of the damage of rows and files by `benchmarks/damage.py`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from damage_cases.files import FileDamage
from damage_cases.plan import FILE_DAMAGES, ROW_DAMAGES
from damage_cases.rows import RowDamage

IDS = {"chain": "chain-1", "tree": "tree-1", "ended": "ended-1"}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    file = tmp_path / "appstat.sqlite"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executescript(
            """
            CREATE TABLE streams (name TEXT PRIMARY KEY, length BIGINT, head TEXT);
            CREATE TABLE journal (stream TEXT, position BIGINT, at DOUBLE, payload BLOB, PRIMARY KEY (stream, position));
            CREATE TABLE experiments (id TEXT PRIMARY KEY, state INTEGER, message BLOB);
            CREATE TABLE jobs (experiment TEXT, id TEXT, message BLOB, PRIMARY KEY (experiment, id));
            CREATE TABLE statistics ("row" INTEGER PRIMARY KEY, experiment TEXT, job TEXT, position BIGINT, part TEXT,
                metrics TEXT, in_force TEXT, UNIQUE (experiment, job, position, part));
            CREATE TABLE blobs (sha256 TEXT PRIMARY KEY);
            CREATE TABLE blob_owners (sha256 TEXT, owner TEXT, PRIMARY KEY (sha256, owner));
            CREATE TABLE clusters (id TEXT PRIMARY KEY);
            CREATE TABLE epochs (epoch INTEGER PRIMARY KEY);
            INSERT INTO blobs VALUES ('ab'), ('cd');
            INSERT INTO blob_owners VALUES ('ab', 'chain-1');
            INSERT INTO clusters VALUES ('0123');
            INSERT INTO epochs VALUES (1);
            """
        )
        for name in IDS.values():
            connection.execute("INSERT INTO streams VALUES (?, 4, 'ff')", (name,))
            connection.execute("INSERT INTO experiments VALUES (?, 1, ?)", (name, name.encode()))
            for number in (1, 2, 3, 4):
                given = (name, number, float(number), b'{"score": 0.%d}' % number)
                connection.execute("INSERT INTO journal VALUES (?, ?, ?, ?)", given)
                connection.execute("INSERT INTO jobs VALUES (?, ?, ?)", (name, str(number), b"\x0a%d" % number))
                row = (name, number, f'{{"score": 0.{number}}}')
                connection.execute("INSERT INTO statistics VALUES (NULL, ?, '1', ?, '', ?, NULL)", row)
    return file


def content(database: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(database)) as connection:
        connection.text_factory = bytes
        tables = [one.decode() for (one,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr) for name in tables}


@pytest.mark.parametrize("damage", ROW_DAMAGES)
@pytest.mark.parametrize("where", ["journal", "statistics of an ended experiment", "jobs", "experiments"])
def test_a_damage_of_rows_changes_one_table_and_is_undone(database: Path, where: str, damage: str) -> None:
    before = content(database)
    made = RowDamage(database, IDS, where, damage, (0.1, 0.1, 0.1))
    made.apply()
    after = content(database)
    assert [name for name in before if before[name] != after[name]] == [where.partition(" ")[0]]
    assert made.text.startswith(damage)
    made.undo()
    assert content(database) == before


def test_a_doubled_record_moves_the_records_after_it(database: Path) -> None:
    RowDamage(database, IDS, "journal", "doubled", (0.0, 0.0, 0.0)).apply()
    records = [row[3] for row in sorted(content(database)["journal"]) if row[0] == b"chain-1"]
    assert [row[-2:] for row in records] == [b"1}", b"2}", b"2}", b"3}", b"4}"]


def test_swapped_records_keep_their_positions(database: Path) -> None:
    RowDamage(database, IDS, "journal", "swapped", (0.0, 0.0, 0.0)).apply()
    records = [(row[1], row[3][-2:]) for row in sorted(content(database)["journal"]) if row[0] == b"chain-1"]
    assert records == [(1, b"1}"), (2, b"3}"), (3, b"2}"), (4, b"4}")]


def test_every_flip_changes_one_row_and_is_undone(database: Path) -> None:
    before = content(database)
    for step in range(60):
        chance = (step / 60, step * 7 % 60 / 60, step * 13 % 60 / 60)
        made = RowDamage(database, IDS, ("journal", "rows")[step % 2] if step > 9 else "rows", "flip", chance)
        if chance[0] < 1 / 5 and step > 9 and step % 2 == 0:
            continue  # This database has no journal of the cluster.
        made.apply()
        after = content(database)
        changed = [(name, set(before[name]) ^ set(after[name])) for name in before if before[name] != after[name]]
        assert [len(rows) for _, rows in changed] == [2], (step, changed)
        made.undo()
        assert content(database) == before


def test_undo_keeps_rows_that_were_written_again(database: Path) -> None:
    made = RowDamage(database, IDS, "jobs", "changed", (0.0, 0.0, 0.0))
    made.apply()
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE jobs SET message = 'new' WHERE experiment = 'chain-1'")
    made.undo()
    assert all(row[2] == b"new" for row in content(database)["jobs"] if row[0] == b"chain-1")


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    found = []
    for name in ("own", "foreign"):
        data = tmp_path / name
        code = data / "agent" / ".bundles" / ("a" * 64)
        snapshot = data / "agent" / "snapshots" / ("b" * 64)
        for folder in (code, snapshot):
            folder.mkdir(parents=True)
        (code / "train.py").write_text(f"print('{name}')\n")
        (snapshot / "state").write_text(name * 10)
        for sha256 in ("a" * 64, "b" * 64, "c" * 64):
            blob = data / "store" / sha256[:2] / sha256
            blob.parent.mkdir(parents=True)
            blob.write_text(f"{name} {sha256}")
        found.append(data)
    return found[0], found[1]


def files(data: Path) -> dict[str, bytes | str]:
    return {
        str(path.relative_to(data)): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in data.rglob("*")
        if path.is_symlink() or path.is_file()
    }


@pytest.mark.parametrize("damage", [*FILE_DAMAGES, "flip"])
@pytest.mark.parametrize("where", ["bundle", "blob", "only blob", "only code", "snapshot", "only snapshot"])
def test_a_damage_of_files_is_undone(folders: tuple[Path, Path], tmp_path: Path, where: str, damage: str) -> None:
    own, foreign = folders
    before, other = files(own), files(foreign)
    made = FileDamage(own, foreign, where, damage, (0.4, 0.5, 0.0), tmp_path / "kept")
    made.apply()
    assert files(own) != before
    made.undo()
    assert files(own) == before
    assert files(foreign) == other


@pytest.mark.parametrize("damage", FILE_DAMAGES)
def test_folders_are_damaged_and_mended(folders: tuple[Path, Path], tmp_path: Path, damage: str) -> None:
    own, foreign = folders
    before = files(own)
    made = FileDamage(own, foreign, "bundle folder", damage, (0.0, 0.0, 0.0), tmp_path / "kept")
    made.apply()
    code = own / "agent" / ".bundles" / ("a" * 64)
    assert files(own) != before
    assert code.is_symlink() == (damage == "link")
    made.undo()
    assert files(own) == before


def test_the_only_copy_of_the_code_is_the_damaged_one(folders: tuple[Path, Path], tmp_path: Path) -> None:
    own, foreign = folders
    made = FileDamage(own, foreign, "only code", "flip", (0.0, 0.0, 0.0), tmp_path / "kept")
    made.apply()
    found = files(own)
    assert not [name for name in found if ".bundles" in name]
    assert made.names == {"a" * 64}
    assert found[f"store/aa/{'a' * 64}"] != b"own " + b"a" * 64
    assert found[f"store/bb/{'b' * 64}"] == b"own " + b"b" * 64
