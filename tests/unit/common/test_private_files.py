"""Private folders and files: their modes under every umask, and what is refused."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hopyard._common.private_files import (
    check_own_folder,
    make_private_folder,
    open_private,
    read_private,
    write_private,
)
from hopyard.errors import AlreadyExists, InvalidInput, NotFound

pytestmark = pytest.mark.quick

UMASKS = pytest.mark.parametrize("umask", [0o000, 0o022, 0o277], ids=["000", "022", "277"])


@contextmanager
def under(umask: int) -> Iterator[None]:
    before = os.umask(umask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process believe that it runs as another user than the owner of its files."""
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)


@UMASKS
def test_a_new_folder_is_private_under_every_umask(tmp_path: Path, umask: int) -> None:
    with under(umask):
        make_private_folder(tmp_path / "data")
    assert mode(tmp_path / "data") == 0o700


def test_missing_parents_are_not_writable_by_others(tmp_path: Path) -> None:
    with under(0o000):
        make_private_folder(tmp_path / "a" / "b" / "data")
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/data")] == [0o755, 0o755, 0o700]


def test_a_wider_folder_is_narrowed_once_and_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o2755)
    with caplog.at_level(logging.INFO):
        make_private_folder(folder)
        make_private_folder(folder)
    assert mode(folder) == 0o2700, "the set-group-ID bit stays"
    assert [entry.getMessage() for entry in caplog.records] == [
        f"{folder}: changed the mode from 2755 to 2700, so that other users cannot read the data"
    ]


def test_a_folder_of_another_user_is_refused_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o755)
    link = tmp_path / "link"
    link.symlink_to(folder)
    strangers(monkeypatch)
    for path in (folder, link):
        with pytest.raises(InvalidInput, match=f"{path}: the folder belongs to user .*choose another data directory"):
            make_private_folder(path)
    assert mode(folder) == 0o755


def test_a_link_to_an_own_folder_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk").chmod(0o755)
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    make_private_folder(tmp_path / "data")
    assert mode(tmp_path / "disk") == 0o700


def test_a_link_to_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    with pytest.raises(InvalidInput, match="data: the symbolic link leads to no folder"):
        make_private_folder(tmp_path / "data")
    assert not (tmp_path / "disk").exists()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(InvalidInput, match="data: found a file, needed a folder"):
        make_private_folder(tmp_path / "data")


@pytest.mark.parametrize("through_link", [False, True])
def test_a_parent_that_everyone_can_write_is_refused(tmp_path: Path, through_link: bool) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    folder = shared / "alice" / "data"
    if through_link:
        (shared / "alice").mkdir(mode=0o755)
        (tmp_path / "link").symlink_to(shared / "alice")
        folder = tmp_path / "link" / "data"
    with pytest.raises(InvalidInput, match=rf"{shared}: every user can rename .*chmod o-w {shared}"):
        make_private_folder(folder)
    assert not folder.exists()
    shared.chmod(0o1777)
    make_private_folder(folder)
    assert mode(folder) == 0o700


def test_a_file_system_without_modes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o755)
    monkeypatch.setattr(os, "fchmod", lambda handle, mode: None)
    with pytest.raises(InvalidInput, match="does not keep file modes"):
        make_private_folder(tmp_path / "data")


@UMASKS
def test_files_are_private_under_every_umask(tmp_path: Path, umask: int) -> None:
    with under(umask & 0o077):
        write_private(tmp_path / "token", b"secret")
        os.close(open_private(tmp_path / "log", os.O_WRONLY | os.O_APPEND))
    assert (mode(tmp_path / "token"), mode(tmp_path / "log")) == (0o600, 0o600)
    assert read_private(tmp_path / "token") == b"secret"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "token"]


def test_opening_narrows_an_existing_file_and_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("line\n")
    (tmp_path / "log").chmod(0o644)
    handle = open_private(tmp_path / "log", os.O_WRONLY | os.O_APPEND)
    os.write(handle, b"more\n")
    os.close(handle)
    assert ((tmp_path / "log").read_text(), mode(tmp_path / "log")) == ("line\nmore\n", 0o600)
    (tmp_path / "link").symlink_to(tmp_path / "log")
    with pytest.raises(OSError, match="link"):
        open_private(tmp_path / "link", os.O_WRONLY)


def test_a_write_replaces_a_link_and_keeps_its_target(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"theirs")
    (tmp_path / "token").symlink_to(tmp_path / "target")
    write_private(tmp_path / "token", b"ours")
    assert (tmp_path / "target").read_bytes() == b"theirs"
    assert (read_private(tmp_path / "token"), mode(tmp_path / "token")) == (b"ours", 0o600)


def test_a_write_without_replacement_keeps_the_first_content(tmp_path: Path) -> None:
    write_private(tmp_path / "token", b"first", replace=False)
    with pytest.raises(AlreadyExists, match="token: the file exists already"):
        write_private(tmp_path / "token", b"second", replace=False)
    assert read_private(tmp_path / "token") == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["token"], "no partial file is left"


@pytest.mark.parametrize("wide", [0o640, 0o604, 0o620, 0o601])
def test_a_file_with_rights_of_others_is_not_read(tmp_path: Path, wide: int) -> None:
    write_private(tmp_path / "token", b"secret")
    (tmp_path / "token").chmod(wide)
    with pytest.raises(InvalidInput, match=rf"token: other users have rights .*mode 0{wide:o}.*chmod 600"):
        read_private(tmp_path / "token")


def test_what_is_no_private_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_private(tmp_path / "token", b"secret")
    (tmp_path / "link").symlink_to(tmp_path / "token")
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "folder").mkdir(0o700)
    with pytest.raises(NotFound, match="absent: no such file"):
        read_private(tmp_path / "absent")
    with pytest.raises(InvalidInput, match="link: found a symbolic link, needed a file"):
        read_private(tmp_path / "link")
    for name in ("pipe", "folder"):
        with pytest.raises(InvalidInput, match=f"{name}: found something that is not a file"):
            read_private(tmp_path / name)
    strangers(monkeypatch)
    with pytest.raises(InvalidInput, match="token: the file belongs to user"):
        read_private(tmp_path / "token")


@pytest.mark.merge
def test_a_service_restricts_its_umask_and_knows_the_one_before() -> None:
    program = (
        "import os, subprocess, sys; from hopyard._common import private_files as files\n"
        "os.umask(0o026); before = files.inherited_umask()\n"
        "child = [sys.executable, '-c', 'import os; print(oct(os.umask(0)))']\n"
        "with files.private_umask():\n"
        "    said = subprocess.check_output(child, umask=files.inherited_umask(), text=True).strip()\n"
        "    own = subprocess.check_output(child, text=True).strip()\n"
        "print(before, said, own, files.inherited_umask(), oct(os.umask(0)))"
    )
    said = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert said.split() == ["-1", "0o26", "0o77", "-1", "0o26"]


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `path` belong to another user than this process, and not to root."""
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    else:
        strangers(monkeypatch)


def test_a_folder_that_only_this_user_can_change_is_accepted(tmp_path: Path) -> None:
    for allowed in (0o700, 0o500, 0o755):
        tmp_path.chmod(allowed)
        check_own_folder(tmp_path)
    tmp_path.chmod(0o700)
    check_own_folder(tmp_path / "missing")
    check_own_folder(Path("/dev/null"))


def test_a_folder_that_others_can_change_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for refused in (0o720, 0o702, 0o777, 0o1777):
        folder.chmod(refused)
        with pytest.raises(InvalidInput, match=rf"other users can write to the folder \(mode {refused:04o}\)"):
            check_own_folder(folder)
    folder.chmod(0o700)
    tmp_path.chmod(0o777)
    with pytest.raises(InvalidInput, match="every user can rename the folders in it"):
        check_own_folder(folder)
    tmp_path.chmod(0o700)
    link = tmp_path / "link"
    link.symlink_to(folder)
    give_away(folder, monkeypatch)
    for path in (folder, link):
        with pytest.raises(InvalidInput, match=rf"{path}: the folder belongs to user .*, and this process runs as"):
            check_own_folder(path)
