"""Tests of the commands `backup` and `restore` as processes: SIGKILL at any moment, a full disk, and what they print."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.appstat.backup_data import BACKUPS, DATABASE, DataDirectory, command, json_of, silent, start
from tests.small_disk import small_disk

KILLS = 3
BLOBS = 40


@pytest.fixture
def data(tmp_path: Path) -> DataDirectory:
    """A data directory with many blobs, so that a backup takes some time."""
    made = DataDirectory(tmp_path / "data")
    made.add_records("e", 1, 200)
    for number in range(BLOBS):
        made.add_blob(random.Random(number).randbytes(200_000))
    return made


def killed(folder: Path, wanted: int, *arguments: object) -> bool:
    """Start a command, kill it when there are `wanted` files in a folder, and return whether it was killed before its end."""
    process = start(*arguments)
    while process.poll() is None and sum(len(names) for _, _, names in os.walk(folder)) < wanted:
        time.sleep(0.002)
    process.kill()
    process.communicate()
    return process.returncode == -9


def test_a_killed_backup_leaves_the_earlier_ones_and_the_next_one_continues(
    data: DataDirectory, tmp_path: Path
) -> None:
    target = tmp_path / "backups"
    BACKUPS.create(data.path, target, None, silent)
    before = sum(len(names) for _, _, names in os.walk(target))
    for number in range(BLOBS, 2 * BLOBS):
        data.add_blob(random.Random(number).randbytes(200_000))
    struck = complete = 0
    for moment in sorted(random.Random(1).sample(range(1, BLOBS), KILLS)):
        was_killed = killed(target, before + moment, "backup", "create", target, "--data", data.path)
        struck, complete = struck + was_killed, complete + (not was_killed)
        found = BACKUPS.verify(target, None, silent)
        assert found.damage == ()
        assert len(found.generations) == 1 + complete
    assert struck >= 1
    made = BACKUPS.create(data.path, target, None, silent)
    assert made.copied_blobs < BLOBS  # The killed ones have copied the others.
    assert made.generation.blobs == 2 * BLOBS
    assert list((target / "incoming").iterdir()) == []
    assert BACKUPS.verify(target, None, silent).damage == ()


def test_a_killed_restore_leaves_no_directory_and_the_next_one_succeeds(data: DataDirectory, tmp_path: Path) -> None:
    target, new = tmp_path / "backups", tmp_path / "new"
    BACKUPS.create(data.path, target, None, silent)
    rng = random.Random(2)
    struck = 0
    for moment in rng.sample(range(1, BLOBS), KILLS):
        struck += killed(tmp_path / ".new.restore", moment, "restore", target, "--data", new)
        if new.exists():
            break  # This one was faster than the kill.
    assert struck >= 1
    if not new.exists():
        command("restore", target, "--data", new)
    assert not (tmp_path / ".new.restore").exists()
    original = {path.relative_to(data.path) for path in (data.path / "store").rglob("*")}
    assert {path.relative_to(new) for path in (new / "store").rglob("*")} == original


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


@pytest.mark.parametrize("what", ["blobs", "database"])
def test_a_full_disk_leaves_the_earlier_backups(data: DataDirectory, tmp_path: Path, what: str) -> None:
    with small_disk(tmp_path / "disk", megabytes=32):
        target, filler = tmp_path / "disk" / "backups", tmp_path / "disk" / "filler"
        command("backup", "create", target, "--data", data.path)
        if what == "blobs":
            for number in range(BLOBS, 2 * BLOBS):
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
        assert made["copied_blobs"] < BLOBS  # The failed one has copied the others.
        assert BACKUPS.verify(target, None, silent).damage == ()
