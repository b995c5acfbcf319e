"""Tests of the folders of policy processes: those of a dead scheduler are removed, and no others."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from hopyard_scheduler.policy_process.folders import LOCKED, UNLOCKED, PolicyFolders

pytestmark = pytest.mark.quick


def left(parent: Path) -> list[str]:
    return sorted(path.name for path in parent.iterdir())


def abandoned(parent: Path, name: str = f"{LOCKED}dead") -> Path:
    """Create the folder that a killed scheduler leaves: without a lock. Return it."""
    (parent / name / "policy-x" / "code").mkdir(parents=True)
    return parent / name


def test_its_folders_are_removed_when_it_is_closed(tmp_path: Path) -> None:
    made = PolicyFolders(tmp_path)
    first, second = made.make(), made.make()
    assert first.parent == second.parent
    assert first.parent.name.startswith(LOCKED)
    made.close()
    made.close()
    assert left(tmp_path) == []


def test_a_removed_folder_is_made_again(tmp_path: Path) -> None:
    made = PolicyFolders(tmp_path)
    first = made.make()
    shutil.rmtree(first.parent)
    second = made.make()
    assert second.is_dir()
    PolicyFolders(tmp_path).remove_abandoned()
    assert left(tmp_path) == [second.parent.name]
    made.close()
    assert left(tmp_path) == []


def test_one_that_made_none_leaves_none(tmp_path: Path) -> None:
    PolicyFolders(tmp_path).close()
    assert left(tmp_path) == []


def test_the_folders_of_the_dead_are_removed_and_those_of_the_living_stay(tmp_path: Path) -> None:
    living, other = PolicyFolders(tmp_path), PolicyFolders(tmp_path)
    folder = living.make()
    abandoned(tmp_path)
    (tmp_path / "something else").mkdir()
    other.remove_abandoned()
    assert left(tmp_path) == [folder.parent.name, "something else"]
    assert folder.is_dir()
    living.close()


@pytest.mark.parametrize("step", ["mkdtemp", "flock", "rename"])
def test_a_folder_that_is_being_made_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Check this for a scheduler that looks for abandoned folders between any two steps of the creation."""
    other, looked = PolicyFolders(tmp_path), list[list[str]]()
    makes_folders, locks, renames = tempfile.mkdtemp, fcntl.flock, Path.rename

    def look() -> None:
        if not looked:
            looked.append(left(tmp_path))
            other.remove_abandoned()

    def mkdtemp(prefix: str, dir: Path) -> str:
        found = makes_folders(prefix=prefix, dir=dir)
        if step == "mkdtemp":
            look()
        return found

    def flock(handle: int, operation: int) -> None:
        locks(handle, operation)
        if step == "flock":
            look()

    def rename(self: Path, target: Path) -> Path:
        found = renames(self, target)
        if step == "rename":
            look()
        return found

    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)
    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(Path, "rename", rename)
    living = PolicyFolders(tmp_path)
    assert living.make().is_dir()
    assert [len(found) for found in looked] == [1]
    living.close()
    assert left(tmp_path) == []


def test_a_folder_that_never_got_its_lock_is_removed_when_it_is_old(tmp_path: Path) -> None:
    old, young = abandoned(tmp_path, f"{UNLOCKED}old"), abandoned(tmp_path, f"{UNLOCKED}young")
    os.utime(old, (1.0, 1.0))
    PolicyFolders(tmp_path).remove_abandoned()
    assert left(tmp_path) == [young.name]


def test_folders_of_other_users_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = abandoned(tmp_path)
    monkeypatch.setattr(os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)
    PolicyFolders(tmp_path).remove_abandoned()
    assert left(tmp_path) == [theirs.name]


def test_what_cannot_be_read_or_removed_stays_and_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"{LOCKED}file").touch()
    (tmp_path / f"{LOCKED}link").symlink_to(tmp_path)
    unreadable = abandoned(tmp_path)
    opens = os.open

    def refused(path: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if Path(path) == unreadable:
            raise PermissionError(path)
        return opens(path, flags, mode, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        PolicyFolders(tmp_path).remove_abandoned()
    assert left(tmp_path) == [unreadable.name, f"{LOCKED}file", f"{LOCKED}link"]
    PolicyFolders(tmp_path / "is not there").remove_abandoned()
