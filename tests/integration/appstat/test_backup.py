"""Tests of backups: what is copied, what is refused, what `verify` finds, and what a restore makes."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from alembic import command

from hopyard.errors import Conflict, DataLoss, InvalidInput, NotFound
from hopyard.v1.common_pb2 import Snapshot
from hopyard_appstat.backup import create as creation
from hopyard_appstat.backup import restore as restoration
from hopyard_appstat.backup.files import sync
from hopyard_appstat.backup.sealed_json import write_sealed
from hopyard_appstat.backup.target import Target
from hopyard_appstat.blobs.cluster_id import STORE, store_owner
from hopyard_appstat.database.connections import database_url, open_database
from hopyard_appstat.migrations.migrate import _config
from hopyard_appstat.reader import AppStatReader
from tests.damage import flip, overwrite
from tests.integration.appstat.backup_data import BACKUPS, DATABASE, DataDirectory, blob_file, silent
from tests.unit.appstat.messages import experiment, job

BIG, SMALL = b"a snapshot " * 10_000, b"code"


@pytest.fixture
def data(tmp_path: Path) -> DataDirectory:
    """A data directory with one experiment and two blobs."""
    made = DataDirectory(tmp_path / "data")
    made.add_records("e", 1, 40)
    made.add_blob(BIG)
    made.add_blob(SMALL)
    return made


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """The folder for backups, which does not exist yet."""
    return tmp_path / "backups"


def backup(data: DataDirectory, target: Path, keep: int | None = None) -> int:
    """Make a backup; return its number."""
    return BACKUPS.create(data.path, target, keep, silent).generation.number


def restore(target: Path, data: Path, number: int | None = None, **options: bool) -> Path:
    """Restore a backup; return the data directory."""
    given = {"as_copy": False, "new_tokens": False, "force": False, **options}
    return BACKUPS.restore(target, data, number=number, note=silent, **given).data


def rows(data: Path, query: str) -> list[tuple[object, ...]]:
    """Return the rows of a query on the database of a data directory."""
    with closing(sqlite3.connect(data / DATABASE)) as connection:
        return connection.execute(query).fetchall()


def files(folder: Path) -> dict[str, bytes]:
    """Return the content of all files in a folder, by path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def damage(target: Path, number: int | None = None) -> list[str]:
    """Return what `verify` finds."""
    return list(BACKUPS.verify(target, number, silent).damage)


CHANGED = "journal of e: record 7 or the one before it was changed: its checksum differs"


def change_record(data: DataDirectory, stream: str = "e") -> None:
    """Damage record 7 of a stream in a way that SQLite does not notice."""
    with closing(sqlite3.connect(data.path / DATABASE)) as connection, connection:
        connection.execute("UPDATE journal SET payload = X'00' WHERE position = 7 AND stream = ?", (stream,))


def make_unreadable(patch: pytest.MonkeyPatch, file: Path, how: int) -> None:
    """Make a file fail with an error: EACCES when it is opened, EIO when it is read."""
    open_ = os.open

    def fail(path: str | Path, *given: int, **named: int) -> int:
        if Path(path) != file:
            return open_(path, *given, **named)
        if how == errno.EACCES:
            raise PermissionError(how, os.strerror(how), str(path))
        return open_("/proc/self/mem", os.O_RDONLY)  # A regular file whose first bytes cannot be read.

    patch.setattr(os, "open", fail)


unreadable = pytest.mark.parametrize(
    ("how", "reason"), [(errno.EACCES, "Permission denied"), (errno.EIO, "Input/output error")]
)

# --------------------------------------------------------------------------------------------------------------- create


def test_the_second_backup_copies_only_what_is_new(data: DataDirectory, target: Path) -> None:
    first = BACKUPS.create(data.path, target, None, silent)
    assert (first.generation.number, first.copied_blobs, first.generation.blobs) == (1, 2, 2)
    assert first.copied_bytes == len(BIG) + len(SMALL) + first.generation.database_bytes
    again = BACKUPS.create(data.path, target, None, silent)
    assert (again.generation.number, again.copied_blobs, again.copied_bytes) == (2, 0, 0)
    data.add_blob(b"new")
    third = BACKUPS.create(data.path, target, None, silent)
    assert (third.generation.blobs, third.copied_blobs) == (3, 1)
    assert third.copied_bytes == len(b"new") + third.generation.database_bytes
    assert [one.number for one in BACKUPS.generations(target).generations] == [1, 2, 3]
    assert damage(target) == []


def test_a_backup_is_private(data: DataDirectory, target: Path) -> None:
    backup(data, target)
    for path in (target, *target.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize(("stored", "expected"), [(True, 0), (False, 1)])
def test_snapshots_that_only_nodes_have_are_counted(
    data: DataDirectory, target: Path, stored: bool, expected: int
) -> None:
    older, newest = Snapshot(position=2, stored=True), Snapshot(position=4, stored=stored)
    running, ended = experiment("x"), experiment("y", "COMPLETED")
    jobs = [job(one.id, "1") for one in (running, ended)]
    for one in jobs:
        one.snapshots.extend([newest, older])
    data.add_rows(running, ended, *jobs, job("x", "2"))
    assert BACKUPS.create(data.path, target, None, silent).on_nodes_only == expected


def test_old_generations_and_their_files_are_deleted(data: DataDirectory, target: Path) -> None:
    backup(data, target)
    data.delete_blob(BIG)
    backup(data, target)
    assert blob_file(target / "blobs", BIG).exists()
    data.add_records("e", 41, 5)
    made = BACKUPS.create(data.path, target, 2, silent)
    assert made.deleted == (1,)
    assert made.freed_bytes > len(BIG)
    assert not blob_file(target / "blobs", BIG).exists()
    assert blob_file(target / "blobs", SMALL).exists()
    assert [one.number for one in BACKUPS.generations(target).generations] == [2, 3]
    assert len(list((target / "databases").iterdir())) == 2
    assert damage(target) == []


def test_nothing_is_deleted_while_a_manifest_is_unreadable(data: DataDirectory, target: Path) -> None:
    backup(data, target)
    data.delete_blob(BIG)
    manifest = target / "generations" / "1.json"
    manifest.unlink()
    assert BACKUPS.create(data.path, target, 5, silent).freed_bytes == 0
    (found,) = damage(target)
    assert found.startswith(f"{manifest}: the manifest of generation 1 is missing, so it cannot be restored; ")
    assert found.endswith("--keep N` deletes nothing while it is among the newest N; a smaller N accepts its loss")
    assert BACKUPS.create(data.path, target, 1, silent).freed_bytes > len(BIG)
    assert damage(target) == []


def test_a_manifest_that_is_found_again_is_used(data: DataDirectory, target: Path) -> None:
    backup(data, target)
    manifest = target / "generations" / "1.json"
    saved = manifest.read_bytes()
    manifest.unlink()
    BACKUPS.create(data.path, target, 5, silent)
    manifest.write_bytes(saved)
    manifest.chmod(0o600)
    assert damage(target) == []


def test_a_database_that_a_writer_changes_all_the_time_is_copied_in_one_state(
    data: DataDirectory, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data.add_records("f", 1, 40)
    writer = sqlite3.connect(data.path / DATABASE, isolation_level=None)
    commits = 0

    def commit(*_: int) -> None:
        nonlocal commits
        commits += 1
        writer.execute("UPDATE streams SET length = length + 1")  # Both rows in one transaction.

    class Source(sqlite3.Connection):
        def backup(self, *given: object, **_: object) -> None:
            super().backup(given[0], pages=1, progress=commit)  # type: ignore[arg-type]

    def connect(file: Path, *, immutable: bool = False) -> sqlite3.Connection:
        return sqlite3.connect(file, isolation_level=None, factory=Source)

    monkeypatch.setattr(creation, "read_only_connection", connect)
    try:
        backup(data, target)
    finally:
        writer.close()
    assert commits > 30  # The database has more pages.
    restored = restore(target, target.parent / "restored")
    assert rows(restored, "SELECT length FROM streams") == [(40,), (40,)]


def test_a_blob_that_is_deleted_during_the_backup_is_in_it(
    data: DataDirectory, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = b"added after the first copies, deleted before the last ones"
    copy_listed, hold = creation._copy_listed, creation._hold

    def then_add(*given: object) -> None:
        copy_listed(*given)  # type: ignore[arg-type]
        data.add_blob(late)

    def then_delete(*given: object) -> object:
        found = hold(*given)  # type: ignore[arg-type]
        data.delete_blob(late)
        return found

    monkeypatch.setattr(creation, "_copy_listed", then_add)
    monkeypatch.setattr(creation, "_hold", then_delete)
    made = BACKUPS.create(data.path, target, None, silent)
    assert (made.generation.blobs, made.lost) == (3, ())
    assert blob_file(target / "blobs", late).read_bytes() == late
    assert damage(target) == []


def test_a_backup_repeats_its_state_if_a_blob_is_deleted_before_it_is_held(
    data: DataDirectory, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creation, "PAUSE_SECONDS", 0.0)
    late, copy_listed, passes = b"deleted too early", creation._copy_listed, 0

    def then_change(*given: object) -> None:
        nonlocal passes
        copy_listed(*given)  # type: ignore[arg-type]
        passes += 1
        if passes == 1:
            data.add_blob(late)
            blob_file(data.path / STORE, late).unlink()
        if passes == 2:
            blob_file(data.path / STORE, late).touch()
            data.delete_blob(late)

    monkeypatch.setattr(creation, "_copy_listed", then_change)
    made = BACKUPS.create(data.path, target, None, silent)
    assert (passes, made.generation.blobs, made.lost) == (2, 2, ())


def test_many_new_blobs_are_copied_before_the_state_is_held(
    data: DataDirectory, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creation, "MAX_HELD", 2)
    copy_listed, passes = creation._copy_listed, 0

    def then_add(*given: object) -> None:
        nonlocal passes
        copy_listed(*given)  # type: ignore[arg-type]
        passes += 1
        for number in range(3 if passes == 1 else 0):
            data.add_blob(b"%d" % number)

    monkeypatch.setattr(creation, "_copy_listed", then_add)
    assert BACKUPS.create(data.path, target, None, silent).generation.blobs == 5
    assert passes == 2


@pytest.mark.parametrize("how", ["missing", "damaged", "a link"])
def test_what_the_cluster_has_lost_is_named_and_no_older_backup_is_deleted(
    data: DataDirectory, target: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(creation, "PAUSE_SECONDS", 0.0)
    backup(data, target)
    data.add_blob(b"to be lost")
    file = blob_file(data.path / STORE, b"to be lost")
    file.unlink()
    if how == "damaged":
        file.write_bytes(b"to be l0st")
    if how == "a link":
        file.symlink_to(blob_file(data.path / STORE, SMALL))
    made = BACKUPS.create(data.path, target, 1, silent)
    (sentence,) = made.lost
    assert file.name in sentence
    assert made.deleted == ()
    assert [one.number for one in BACKUPS.generations(target).generations] == [1, 2]
    found = BACKUPS.verify(target, None, silent)
    assert found.damage == ()
    assert file.name in found.notes[0]
    restored = BACKUPS.restore(
        target, target.parent / "new", number=2, as_copy=False, new_tokens=False, force=False, note=silent
    )
    assert file.name in restored.missing[0]


@unreadable
@pytest.mark.parametrize("held", [False, True])
def test_a_blob_that_cannot_be_read_is_named_and_the_others_are_saved(
    data: DataDirectory, target: Path, monkeypatch: pytest.MonkeyPatch, how: int, reason: str, held: bool
) -> None:
    backup(data, target)
    copy_listed, late = creation._copy_listed, b"a blob that cannot be read"

    def add() -> None:
        data.add_blob(late)
        data.add_blob(b"another one")

    def then_add(*given: object) -> None:
        copy_listed(*given)  # type: ignore[arg-type]
        add()

    if held:
        monkeypatch.setattr(creation, "_copy_listed", then_add)
    else:
        add()
    file = blob_file(data.path / STORE, late)
    make_unreadable(monkeypatch, file, how)
    made = BACKUPS.create(data.path, target, 1, silent)
    assert made.lost == (
        f"blob {file.name}: it cannot be copied ({file}: cannot be read: {reason}), so the backup does not have it; jobs that need it "
        "continue from an older snapshot",
    )
    assert (made.generation.blobs, made.copied_blobs, made.deleted) == (3, 1, ())
    assert list((target / "incoming").iterdir()) == []
    monkeypatch.undo()
    assert damage(target) == []
    assert BACKUPS.create(data.path, target, None, silent).lost == ()  # The disk has recovered.


def test_the_folders_of_blobs_that_an_earlier_backup_has_copied_are_flushed(
    data: DataDirectory, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup(data, target)
    for manifest in (target / "generations").iterdir():  # As if the backup was killed before.
        manifest.unlink()
    write_sealed(target / "hopyard-backup.json", {"cluster": data.cluster, "generations": []})
    flushed = list[Path]()

    def note(path: Path) -> None:
        flushed.append(path)
        sync(path)

    monkeypatch.setattr(creation, "sync", note)
    assert BACKUPS.create(data.path, target, None, silent).copied_blobs == 0
    blobs = target / "blobs"
    assert {blobs, blob_file(blobs, BIG).parent, blob_file(blobs, SMALL).parent} <= set(flushed)


def test_a_damaged_database_gets_no_generation(data: DataDirectory, target: Path) -> None:
    backup(data, target)
    file = data.path / DATABASE
    overwrite(file, 4096 * 3, 64)
    with pytest.raises(DataLoss, match="no backup was made"):
        backup(data, target)
    assert [one.number for one in BACKUPS.generations(target).generations] == [1]
    assert list((target / "incoming").iterdir()) == []


def test_no_older_backup_is_deleted_if_the_journal_is_damaged(data: DataDirectory, target: Path) -> None:
    backup(data, target)
    data.add_records("e", 41, 5)
    backup(data, target)
    change_record(data)
    made = BACKUPS.create(data.path, target, 1, silent)
    assert (made.generation.number, made.deleted, made.freed_bytes) == (3, (), 0)
    assert made.damaged == (
        f"{CHANGED}; in a cluster that is restored from this backup, the experiment e is PAUSED; backup 2 is the newest in which it is "
        f"undamaged: `hopyard restore {target} --generation 2`",
    )
    assert [one.number for one in BACKUPS.generations(target).generations] == [1, 2, 3]
    again = BACKUPS.create(data.path, target, 1, silent)
    assert (again.deleted, again.damaged) == ((), made.damaged), "the database has not changed since"


def test_a_damaged_journal_without_an_undamaged_backup_names_the_other_remedies(
    data: DataDirectory, target: Path
) -> None:
    backup(data, target)
    data.add_records("f", 1, 40)
    data.add_records("cluster", 1, 10)
    for stream in ("f", "cluster"):
        change_record(data, stream)
    of_cluster, of_f = BACKUPS.create(data.path, target, None, silent).damaged
    none = "no older backup in this folder has it undamaged; look in other folders of backups"
    assert "journal of cluster: record 7 " in of_cluster
    assert f"does not start; {none}" in of_cluster
    assert "rm --force" not in of_cluster
    assert f"the experiment f is PAUSED; {none}" in of_f
    assert of_f.endswith("or delete the experiment with `hopyard rm --force f`")


@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        ("DELETE FROM journal WHERE position = 7", "record 7 is missing; found record 8 after it"),
        ("DELETE FROM journal WHERE position = 40", "record 40 is missing: the journal must have 40 records"),
        ("UPDATE streams SET length = 39", "record 40 is not the last one that the stream's row names"),
        ("DELETE FROM streams", "its row is missing"),
        ("UPDATE journal SET payload = 'a text' WHERE position = 7", "cannot be read after record 6"),
        ("UPDATE journal SET kind = CAST(X'FF' AS TEXT) WHERE position = 7", "cannot be read after record "),
    ],
)
def test_each_damage_of_the_journal_is_found(data: DataDirectory, target: Path, harm: str, expected: str) -> None:
    with closing(sqlite3.connect(data.path / DATABASE)) as connection, connection:
        connection.execute(harm)
    (found,) = BACKUPS.create(data.path, target, None, silent).damaged
    assert found.startswith(f"journal of e: {expected}")


def test_damaged_copies_that_are_replaced_are_named(data: DataDirectory, target: Path) -> None:
    assert BACKUPS.create(data.path, target, None, silent).replaced == ()
    (database,) = (target / "databases").iterdir()
    flip(database)
    blob = blob_file(target / "blobs", BIG)
    blob.write_bytes(BIG[:100])
    made = BACKUPS.create(data.path, target, None, silent)
    assert set(made.replaced) == {str(database), str(blob)}
    assert made.copied_bytes == len(BIG) + made.generation.database_bytes
    assert damage(target) == []
    assert BACKUPS.create(data.path, target, None, silent).replaced == ()


# -------------------------------------------------------------------------------------------------------------- refused


def test_a_missing_database_names_the_tools_for_databases_with_a_url(data: DataDirectory, target: Path) -> None:
    for file in data.path.glob(f"{DATABASE}*"):
        file.unlink()
    with pytest.raises(NotFound, match="pg_dump"):
        backup(data, target)
    assert not target.exists()


def test_a_store_with_a_url_is_refused(data: DataDirectory, target: Path) -> None:
    shutil.rmtree(data.path / STORE)
    with pytest.raises(NotFound, match="--store"):
        backup(data, target)


def test_the_target_of_another_cluster_is_refused(data: DataDirectory, target: Path, tmp_path: Path) -> None:
    backup(data, target)
    other = DataDirectory(tmp_path / "other")
    before = files(target)
    with pytest.raises(Conflict, match=f"has backups of cluster {data.cluster}, .* belongs to cluster {other.cluster}"):
        backup(other, target)
    assert files(target) == before


def test_a_folder_with_something_else_is_refused(data: DataDirectory, target: Path) -> None:
    target.mkdir()
    (target / "thesis.tex").touch()
    with pytest.raises(InvalidInput, match=r"found thesis\.tex"):
        backup(data, target)
    assert [path.name for path in target.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("place", [".", "inside", ".."])
def test_a_target_that_would_be_lost_with_the_data_is_refused(data: DataDirectory, place: str) -> None:
    with pytest.raises(InvalidInput, match="not separate"):
        backup(data, data.path / place)


def test_links_that_lead_to_each_other_are_no_target(data: DataDirectory, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        backup(data, tmp_path / "loop")


@pytest.mark.parametrize("name", ["blobs", "databases", "generations", "incoming"])
def test_a_link_in_the_target_is_refused(data: DataDirectory, target: Path, tmp_path: Path, name: str) -> None:
    backup(data, target)
    shutil.move(target / name, tmp_path / "elsewhere")
    (target / name).symlink_to(tmp_path / "elsewhere")
    for work in (lambda: backup(data, target), lambda: damage(target), lambda: restore(target, tmp_path / "new")):
        with pytest.raises(DataLoss, match=f"{name}: found a link"):
            work()


def test_only_one_command_at_a_time_writes(data: DataDirectory, target: Path) -> None:
    backup(data, target)
    with (target / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        with pytest.raises(Conflict, match="another command uses it now"):
            backup(data, target)
        assert damage(target) == []
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Conflict, match="a backup writes to it now"):
            damage(target)


# --------------------------------------------------------------------------------------------------------------- verify


@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        pytest.param(lambda t: flip(blob_file(t / "blobs", BIG)), "is damaged: its bytes have another hash", id="blob"),
        pytest.param(
            lambda t: blob_file(t / "blobs", BIG).unlink(), "is missing, needed by generations 1, 2", id="no blob"
        ),
        pytest.param(lambda t: flip(next((t / "databases").iterdir())), "the database of generation", id="database"),
        pytest.param(
            lambda t: next((t / "databases").iterdir()).unlink(), "so it cannot be restored", id="no database"
        ),
        pytest.param(lambda t: flip(t / "generations" / "2.json"), "2.json: is damaged", id="manifest"),
        pytest.param(
            lambda t: (t / "generations" / "2.json").unlink(),
            "the manifest of generation 2 is missing",
            id="no manifest",
        ),
        pytest.param(lambda t: flip(t / "hopyard-backup.json"), "hopyard-backup.json: is damaged", id="head"),
        pytest.param(lambda t: (t / "hopyard-backup.json").unlink(), "hopyard-backup.json: is missing", id="no head"),
    ],
)
def test_verify_names_each_damage(
    data: DataDirectory, target: Path, harm: Callable[[Path], None], expected: str
) -> None:
    backup(data, target)
    data.add_records("e", 41, 5)
    backup(data, target)
    assert damage(target) == []
    harm(target)
    (found,) = damage(target)
    assert expected in found
    assert str(target) in found


def test_verify_finds_a_record_that_was_changed_before_the_backup(data: DataDirectory, target: Path) -> None:
    change_record(data)
    backup(data, target)
    (found,) = damage(target)
    assert found.endswith(f"the database of generation 1: {CHANGED}")


def test_verify_names_all_generations_that_share_a_damaged_database(
    data: DataDirectory, target: Path, tmp_path: Path
) -> None:
    first, second = backup(data, target), backup(data, target)
    data.add_records("e", 41, 5)
    shared = [backup(data, target), backup(data, target)]
    with Target.open(target) as opened:
        database = opened.database_path(opened.manifest(shared[0]).database_sha256)
    flip(database)
    found = BACKUPS.verify(target, None, silent)
    assert found.damage == (
        f"{database}: the database of generations 3, 4 is damaged: its bytes have another hash, so it cannot be restored",
    )
    assert found.notes == (
        f"generation {second} is the newest without damage: `hopyard restore {target} --generation {second}`",
    )
    alternative = (
        rf"{database}: the database of generations 3, 4 is damaged: .*; nothing was restored; generation {second} is the newest with "
        rf"an undamaged database: `hopyard restore {target} --generation {second}`"
    )
    with pytest.raises(DataLoss, match=alternative):
        restore(target, tmp_path / "new")
    with Target.open(target) as opened:
        flip(opened.database_path(opened.manifest(first).database_sha256))
    assert BACKUPS.verify(target, None, silent).notes == ("no generation is without damage",)
    with pytest.raises(DataLoss, match="no other generation in this folder has an undamaged database"):
        restore(target, tmp_path / "new")


def test_verify_names_a_record_of_another_type(data: DataDirectory, target: Path) -> None:
    with closing(sqlite3.connect(data.path / DATABASE)) as connection, connection:
        connection.execute("UPDATE journal SET payload = 'a text' WHERE position = 7")
    backup(data, target)
    (found,) = damage(target)
    assert "journal of e: cannot be read" in found


@unreadable
def test_verify_names_each_file_that_cannot_be_read(
    data: DataDirectory, target: Path, monkeypatch: pytest.MonkeyPatch, how: int, reason: str
) -> None:
    backup(data, target)
    blob, (database,) = blob_file(target / "blobs", BIG), (target / "databases").iterdir()
    manifest = target / "generations" / "1.json"
    for file, end in {
        blob: "needed by generation 1",
        database: "it is the database of generation 1",
        manifest: "",
    }.items():
        with monkeypatch.context() as patch:
            make_unreadable(patch, file, how)
            (found,) = damage(target)
        assert found.startswith(f"{file}: cannot be read: {reason}")
        assert end in found


def replaced(path: Path, content: object) -> None:
    """Replace a file by a JSON document."""
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        (flip, "2.json: is damaged: "),
        (Path.unlink, "2.json: the manifest of generation 2 is missing"),
        (lambda path: replaced(path, ["an array"]), "2.json: is damaged: it is not a JSON document with a checksum"),
        (lambda path: write_sealed(path, {"number": 2}), "2.json: is damaged: it is not a manifest"),
    ],
)
def test_a_list_names_damaged_manifests_and_contains_the_others(
    data: DataDirectory, target: Path, harm: Callable[[Path], None], expected: str
) -> None:
    for _ in range(3):
        backup(data, target)
    harm(target / "generations" / "2.json")
    found = BACKUPS.generations(target)
    assert [one.number for one in found.generations] == [1, 3]
    (sentence,) = found.damage
    assert expected in sentence


@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        (flip, "is damaged: "),
        (Path.unlink, "is missing"),
        (lambda path: replaced(path, []), "is damaged: it is not a JSON document"),
        (lambda path: write_sealed(path, {"number": 2}), "is damaged: it is the file of something else"),
    ],
)
def test_the_backups_of_a_damaged_target_can_be_restored_but_none_is_added(
    data: DataDirectory, target: Path, tmp_path: Path, harm: Callable[[Path], None], expected: str
) -> None:
    backup(data, target)
    head = target / "hopyard-backup.json"
    harm(head)
    before = files(target)
    for found in (BACKUPS.generations(target), BACKUPS.verify(target, None, silent)):
        assert [one.number for one in found.generations] == [1]
        (sentence,) = found.damage
        assert sentence.startswith(f"{head}: {expected}")
        assert "can still be restored" in sentence
    with pytest.raises(DataLoss, match=rf"{head}: {expected}.*make further backups in another folder"):
        backup(data, target)
    assert files(target) == before
    assert rows(restore(target, tmp_path / "new"), "SELECT length FROM streams") == [(40,)]


def test_verify_of_one_generation_reads_only_that_one(data: DataDirectory, target: Path) -> None:
    backup(data, target)
    data.add_blob(b"new")
    backup(data, target)
    blob_file(target / "blobs", b"new").unlink()
    assert damage(target, 1) == []
    assert len(damage(target, 2)) == 1
    with pytest.raises(NotFound, match="there is no generation 3; there are: 1, 2"):
        damage(target, 3)


def test_the_next_backup_copies_a_blob_again_whose_damaged_copy_was_deleted(data: DataDirectory, target: Path) -> None:
    backup(data, target)
    blob_file(target / "blobs", BIG).unlink()
    made = BACKUPS.create(data.path, target, None, silent)
    assert made.copied_blobs == 1
    assert damage(target) == []


def test_verify_changes_nothing(data: DataDirectory, target: Path) -> None:
    backup(data, target)
    before = files(target)
    damage(target)
    assert files(target) == before


# -------------------------------------------------------------------------------------------------------------- restore


def test_a_restore_names_damaged_journals_and_the_older_backup(
    data: DataDirectory, target: Path, tmp_path: Path
) -> None:
    backup(data, target)
    change_record(data)
    made = BACKUPS.create(data.path, target, None, silent)
    given = {"as_copy": False, "new_tokens": False, "force": False}
    restored = BACKUPS.restore(target, tmp_path / "2", number=2, note=silent, **given)
    assert restored.damaged == made.damaged
    assert (
        f"backup 1 is the newest in which it is undamaged: `hopyard restore {target} --generation 1`" in made.damaged[0]
    )
    assert sorted(path.name for path in restored.data.glob(f"{DATABASE}*")) == [DATABASE]
    assert BACKUPS.restore(target, tmp_path / "1", number=1, note=silent, **given).damaged == ()


def test_a_restored_directory_has_the_state_of_its_generation(data: DataDirectory, target: Path) -> None:
    backup(data, target)
    data.add_records("e", 41, 5)
    data.delete_blob(BIG)
    backup(data, target)
    for number, (length, blobs) in {1: (40, [BIG, SMALL]), 2: (45, [SMALL])}.items():
        restored = restore(target, target.parent / f"restored{number}", number)
        assert rows(restored, "SELECT length FROM streams") == [(length,)]
        found = [content for name, content in files(restored / STORE).items() if name != "cluster.id"]
        assert sorted(found) == sorted(blobs)
        assert store_owner(restored / STORE) == data.cluster
        assert (restored / "secrets" / "user.token").read_text() == "a token\n"
        assert stat.S_IMODE(restored.stat().st_mode) == 0o700
        AppStatReader(restored).close()


def test_a_restored_database_has_another_history_and_a_later_epoch(data: DataDirectory, target: Path) -> None:
    backup(data, target)
    before = time.time() * 1000
    first, second = restore(target, target.parent / "1"), restore(target, target.parent / "2")
    histories, epochs = set[object](), list[int]()
    for restored in (first, second):
        ((cluster, history),) = rows(restored, "SELECT id, history FROM clusters")
        assert cluster == data.cluster
        histories.add(history)
        ((epoch,),) = rows(restored, "SELECT max(epoch) FROM epochs")
        assert isinstance(epoch, int)
        epochs.append(epoch)
    assert len(histories | {data.cluster}) == 3
    assert epochs[0] >= before
    assert epochs[1] > epochs[0]


def test_a_copy_is_another_cluster_with_other_tokens(data: DataDirectory, target: Path) -> None:
    backup(data, target)
    copied = restore(target, target.parent / "copy", as_copy=True)
    ((cluster,),) = rows(copied, "SELECT id FROM clusters")
    assert cluster != data.cluster
    assert store_owner(copied / STORE) == cluster
    assert not (copied / "secrets").exists()
    assert not (restore(target, target.parent / "new", new_tokens=True) / "secrets").exists()


@pytest.mark.parametrize("content", ["appstat.sqlite", "cluster.lock", "agent"])
def test_a_directory_with_data_is_refused(data: DataDirectory, target: Path, tmp_path: Path, content: str) -> None:
    backup(data, target)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / content).touch()
    with pytest.raises(Conflict, match=f"is not empty .found {content}.; .* move the old directory away"):
        restore(target, tmp_path / "full")
    assert not (tmp_path / ".full.restore").exists()


@pytest.mark.parametrize("place", [".", "inside", ".."])
def test_a_directory_that_is_not_separate_from_the_backup_is_refused(
    data: DataDirectory, target: Path, place: str
) -> None:
    backup(data, target)
    with pytest.raises(InvalidInput, match="is not separate from the backup"):
        restore(target, target / place)
    assert not (target / "inside").exists()


def test_a_device_is_no_backup(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="/dev/null: there is no backup here"):
        restore(Path("/dev/null"), tmp_path / "new")


def test_an_empty_directory_is_used(data: DataDirectory, target: Path, tmp_path: Path) -> None:
    backup(data, target)
    (tmp_path / "empty").mkdir()
    restore(target, tmp_path / "empty")
    assert rows(tmp_path / "empty", "SELECT length FROM streams") == [(40,)]


@pytest.mark.parametrize("harm", ["flipped", "missing", "a link"])
def test_a_damaged_blob_is_not_restored(data: DataDirectory, target: Path, tmp_path: Path, harm: str) -> None:
    backup(data, target)
    file = blob_file(target / "blobs", BIG)
    if harm == "flipped":
        flip(file)
    else:
        file.unlink()
    if harm == "a link":
        file.symlink_to(blob_file(target / "blobs", SMALL))
    with pytest.raises(DataLoss, match=f"1 of 2 blobs cannot be restored: {file}: .* Nothing was restored; .* --force"):
        restore(target, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / ".new.restore").exists()
    restored = restore(target, tmp_path / "new", force=True)
    assert not blob_file(restored / STORE, BIG).exists()
    assert blob_file(restored / STORE, SMALL).exists()


@unreadable
def test_a_blob_that_cannot_be_read_is_left_out_only_if_the_user_wants_it(
    data: DataDirectory, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: int, reason: str
) -> None:
    backup(data, target)
    file = blob_file(target / "blobs", BIG)
    make_unreadable(monkeypatch, file, how)
    with pytest.raises(
        DataLoss, match=f"1 of 2 blobs cannot be restored: {file}: cannot be read: {reason}. Nothing was"
    ):
        restore(target, tmp_path / "new")
    made = BACKUPS.restore(target, tmp_path / "new", number=1, as_copy=False, new_tokens=False, force=True, note=silent)
    assert made.missing == (f"{file}: cannot be read: {reason}",)
    assert [path.name for path in (made.data / STORE).rglob("*/*")] == [hashlib.sha256(SMALL).hexdigest()]


def test_a_generation_is_restored_that_a_killed_backup_did_not_add_to_the_head(
    data: DataDirectory, target: Path, tmp_path: Path
) -> None:
    backup(data, target)
    write_sealed(target / "hopyard-backup.json", {"cluster": data.cluster, "generations": []})
    assert rows(restore(target, tmp_path / "new"), "SELECT length FROM streams") == [(40,)]


def test_the_end_of_a_restore_keeps_the_folder_of_another_one(
    data: DataDirectory, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup(data, target)
    other, rename = tmp_path / ".new.restore", restoration._rename

    def then_begin_another(made: Path, new: Path) -> None:
        rename(made, new)
        other.mkdir()
        (other / "cluster.lock").touch()
        (other / "appstat.sqlite").touch()

    monkeypatch.setattr(restoration, "_rename", then_begin_another)
    restore(target, tmp_path / "new")
    assert sorted(path.name for path in other.iterdir()) == ["appstat.sqlite", "cluster.lock"]


def test_a_damaged_database_is_not_restored(data: DataDirectory, target: Path, tmp_path: Path) -> None:
    backup(data, target)
    flip(next((target / "databases").iterdir()))
    with pytest.raises(DataLoss, match=r"the database of generation 1 is damaged: .* nothing was restored"):
        restore(target, tmp_path / "new", force=True)
    assert not (tmp_path / "new").exists()


def test_a_damaged_newest_manifest_names_the_older_generations(
    data: DataDirectory, target: Path, tmp_path: Path
) -> None:
    backup(data, target)
    backup(data, target)
    flip(target / "generations" / "2.json")
    with pytest.raises(DataLoss, match=r"2.json: is damaged.*name an older one with --generation \(1, 2\)"):
        restore(target, tmp_path / "new")
    restore(target, tmp_path / "new", 1)


def test_a_backup_of_an_older_schema_is_upgraded(data: DataDirectory, target: Path, tmp_path: Path) -> None:
    backup(data, target)
    # The generation as an older version would have made it.
    (file,) = (target / "databases").iterdir()
    shutil.copy(file, tmp_path / DATABASE)
    database = open_database(database_url(None, tmp_path))
    config = _config()
    with database.writer.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0008")
    database.close()
    older = (tmp_path / DATABASE).read_bytes()
    sha256 = hashlib.sha256(older).hexdigest()
    (target / "databases" / f"{sha256}.sqlite").write_bytes(older)
    with Target.open(target) as opened:
        manifest = replace(opened.manifest(1), database_sha256=sha256, database_bytes=len(older), revision="0008")
        manifest.write(opened.manifest_path(1))
    found = BACKUPS.verify(target, None, silent)
    assert found.damage == ()
    assert "schema revision 0008" in found.notes[0]
    AppStatReader(restore(target, tmp_path / "new")).close()
