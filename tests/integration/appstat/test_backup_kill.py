"""Tests of backups and restores that are killed at any step, and of what the commands print."""

from __future__ import annotations

import json
import random
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.integration.appstat.backup_data import BACKUPS, DATABASE, DataDirectory, command, json_of, silent
from tests.kill_at_step import killed_at_each_step
from tests.small_disk import small_disk

BLOBS = 4


def content(number: int) -> bytes:
    return b"blob %d" % number


@pytest.fixture
def data(tmp_path: Path) -> DataDirectory:
    """A data directory with some blobs, alone in a folder."""
    folder = tmp_path / "one"
    folder.mkdir()
    made = DataDirectory(folder / "data")
    made.add_records("e", 1, 200)
    for number in range(BLOBS):
        made.add_blob(content(number))
    return made


def create(folder: Path) -> None:
    """Make a backup of the data directory in a folder."""
    BACKUPS.create(folder / "data", folder / "backups", None, silent)


def restore(folder: Path) -> None:
    """Make a new data directory of the newest backup in a folder."""
    given: dict[str, Any] = {"number": None, "as_copy": False, "new_tokens": False, "force": False, "note": silent}
    BACKUPS.restore(folder / "backups", folder / "new", **given)


def test_a_backup_killed_at_any_step_leaves_the_earlier_ones_and_the_next_one_continues(
    data: DataDirectory, tmp_path: Path
) -> None:
    create(data.path.parent)
    for number in range(BLOBS, 2 * BLOBS):
        data.add_blob(content(number))
    generations, copied = [], []
    for copy in killed_at_each_step(create, data.path.parent):
        found = BACKUPS.verify(copy / "backups", None, silent)
        assert found.damage == ()
        generations.append(len(found.generations))
        made = BACKUPS.create(copy / "data", copy / "backups", None, silent)
        assert made.generation.blobs == 2 * BLOBS
        copied.append(made.copied_blobs)
        assert list((copy / "backups" / "incoming").iterdir()) == []
        assert BACKUPS.verify(copy / "backups", None, silent).damage == ()
    # The killed ones have copied more and more blobs. Only one that was killed after the manifest was written has added a generation.
    assert copied == sorted(copied, reverse=True)
    assert set(copied) == set(range(BLOBS + 1))
    assert generations == sorted(generations)
    assert (generations[0], generations[-1]) == (1, 2)


def test_a_restore_killed_at_any_step_leaves_no_part_of_a_directory_and_the_next_one_succeeds(
    data: DataDirectory, tmp_path: Path
) -> None:
    create(data.path.parent)
    original = {path.relative_to(data.path) for path in (data.path / "store").rglob("*")}
    copies = killed_at_each_step(restore, data.path.parent)
    complete = [(copy / "new").exists() for copy in copies]
    assert complete == sorted(complete)
    assert complete.count(False) > 2 * BLOBS, "the kills must have hit"
    for copy, done in zip(copies, complete, strict=True):
        if not done:
            restore(copy)
        assert not (copy / ".new.restore").exists()
        assert {path.relative_to(copy / "new") for path in (copy / "new" / "store").rglob("*")} == original


def test_the_commands_say_what_they_did(data: DataDirectory, tmp_path: Path) -> None:
    target = tmp_path / "backups"
    out, _ = command("backup", "create", target, "--data", data.path)
    assert out.startswith(f"backup 1 is in {target}: ")
    assert f"copied {BLOBS} blobs" in out
    made = json_of("backup", "create", target, "--data", data.path, "--keep", "1")
    assert (made["generation"]["number"], made["copied_blobs"], made["deleted"]) == (2, 0, [1])
    (listed,) = (whole := json_of("backup", "list", target))["generations"]
    assert whole["damage"] == []
    assert (listed["number"], listed["blobs"], listed["cluster"]) == (2, BLOBS, data.cluster)
    assert "2" in command("backup", "list", target)[0]
    found = json_of("backup", "verify", target)
    assert (found["ok"], found["damage"], found["records"]) == (True, [], 200)
    assert "no damage found" in command("backup", "verify", target)[0]
    next((target / "blobs").rglob("*/*")).unlink()
    out, error = command("backup", "verify", target, code=1)
    assert out.startswith("damage: ")
    assert error.endswith("error: damage was found in 1 place\n")
    _, error = command("restore", target, "--data", tmp_path / "new", code=1)
    assert "Nothing was restored" in error
    restored = json_of("restore", target, "--data", tmp_path / "new", "--force")
    assert (restored["data"], len(restored["missing"])) == (str(tmp_path / "new"), 1)
    _, error = command("restore", target, "--data", tmp_path / "new", code=1)
    assert "is not empty" in error
    assert json.loads((target / "hopyard-backup.json").read_text())["cluster"] == data.cluster
    (target / "generations" / "2.json").write_text("[]")
    command("backup", "create", target, "--data", data.path)
    out, error = command("backup", "list", target, code=1)
    assert "3" in out
    assert error.startswith(f"damage: {target / 'generations' / '2.json'}: is damaged")
    whole = json_of("backup", "list", target, code=1)
    assert ([one["number"] for one in whole["generations"]], len(whole["damage"])) == ([3], 1)


def test_the_commands_name_a_damaged_journal_and_replaced_files(data: DataDirectory, tmp_path: Path) -> None:
    target = tmp_path / "backups"
    command("backup", "create", target, "--data", data.path)
    blob = next((target / "blobs").rglob("*/*"))
    blob.write_bytes(b"")
    out, _ = command("backup", "create", target, "--data", data.path)
    assert f"replaced the damaged file {blob} by an undamaged copy" in out
    with closing(sqlite3.connect(data.path / DATABASE)) as database, database:
        ((stream,),) = database.execute("SELECT min(name) FROM streams").fetchall()
        database.execute("UPDATE journal SET payload = X'00' WHERE position = 7 AND stream = ?", (stream,))
    out, error = command("backup", "create", target, "--data", data.path, "--keep", "1", code=1)
    assert "deleted" not in out
    warning, last = error.splitlines()[-2:]
    assert warning.startswith(f"warning: journal of {stream}: record 7 or the one before it was changed: ")
    assert last == "error: the backup contains 1 damaged journal; no earlier backup was deleted"
    assert len(json_of("backup", "list", target)["generations"]) == 3
    _, error = command("restore", target, "--data", tmp_path / "new")
    assert warning in error.splitlines()
    assert json_of("restore", target, "--data", tmp_path / "json")["damaged"] == [warning.removeprefix("warning: ")]


@pytest.mark.parametrize("what", ["blobs", "database"])
def test_a_full_disk_leaves_the_earlier_backups(data: DataDirectory, tmp_path: Path, what: str) -> None:
    more = 40
    with small_disk(tmp_path / "disk", megabytes=32):
        target, filler = tmp_path / "disk" / "backups", tmp_path / "disk" / "filler"
        command("backup", "create", target, "--data", data.path)
        if what == "blobs":
            for number in range(more):
                data.add_blob(random.Random(number).randbytes(200_000))
        else:
            with closing(sqlite3.connect(data.path / DATABASE)) as database, database:
                database.execute("UPDATE epochs SET holder = hex(zeroblob(2000000))")
        filler.write_bytes(bytes(shutil.disk_usage(target).free - 2_000_000))
        _, error = command("backup", "create", target, "--data", data.path, code=1)
        last = error.splitlines()[-1]
        assert re.match(rf"error: {target}/incoming.*: no space left on its disk; no backup was made", last)
        assert [one.number for one in BACKUPS.generations(target).generations] == [1]
        assert BACKUPS.verify(target, None, silent).damage == ()
        assert list((target / "incoming").iterdir()) == []
        command("restore", target, "--data", tmp_path / "restored")
        filler.unlink()
        made = json_of("backup", "create", target, "--data", data.path)
        assert made["generation"]["number"] == 2
        assert made["copied_blobs"] < more  # The failed one has copied the others.
        assert BACKUPS.verify(target, None, silent).damage == ()
