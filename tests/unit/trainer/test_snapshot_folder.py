"""Tests of snapshots that stay folders: they have the name, the bytes on the wire and the checks of a packed file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopyard._runtime.snapshot_file import (
    SnapshotCorruptError,
    SnapshotLimits,
    SnapshotRefusedError,
    hash_file,
    pack,
    unpack,
)
from hopyard._runtime.snapshot_folder import (
    FolderMember,
    FolderWriter,
    hash_folder,
    keep,
    loadable,
    members,
    open_archive,
    open_contents,
    open_packed,
    remove,
    settle,
    size_of,
)
from tests.unit.trainer.test_snapshot_file import NAMES, tree

pytestmark = pytest.mark.quick


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    root = tmp_path / "saved"
    (root / "state" / "empty").mkdir(parents=True)
    (root / "state" / "torch.pt").write_bytes(os.urandom(300_000))
    (root / "state" / "nothing").write_bytes(b"")
    (root / "hopyard.json").write_text("{}")
    return root


@pytest.mark.merge
@given(
    files=st.dictionaries(NAMES, st.binary(max_size=2000), max_size=6),
    folders=st.sets(NAMES, max_size=3),
    step=st.integers(1, 5000),
)
@settings(max_examples=40, deadline=None)
def test_a_folder_is_named_read_and_sent_as_its_packed_file(
    files: dict[str, bytes], folders: set[str], step: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        source = base / "source"
        source.mkdir()
        for number, (file, content) in enumerate(files.items()):
            parent = source / f"d{number % 2}"
            parent.mkdir(exist_ok=True)
            (parent / file).write_bytes(content)
        for folder in folders:
            (source / "folders" / folder).mkdir(parents=True, exist_ok=True)
        info = pack(source, base / "file", durable=False)
        assert hash_folder(source) == info
        with open_archive(source) as archive:
            assert archive.read() == (base / "file").read_bytes()
        (base / "again").mkdir()
        writer = FolderWriter(base / "again", members(source))
        with open_contents(source, members(source)) as contents:
            while data := contents.read(step):
                writer.write(data)
        assert writer.finish() == info
        assert tree(base / "again") == tree(source)


@pytest.mark.parametrize(
    "found",
    [
        [FolderMember("../out", 1)],
        [FolderMember("/out", 1)],
        [FolderMember("a//b", 1)],
        [FolderMember("a\0", 1)],
        [FolderMember("a", 0), FolderMember("a", 1)],
        [FolderMember("a", None), FolderMember("a", None)],
        [FolderMember("folder/a", 1), FolderMember("folder", None)],
        [FolderMember("a", 0), FolderMember("a/b", 1)],
    ],
)
def test_members_that_no_folder_has_are_refused(found: list[FolderMember], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(SnapshotRefusedError):
        FolderWriter(tmp_path / "in", found)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_link_that_an_earlier_member_cannot_have_made_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").symlink_to(tmp_path / "out")
    with pytest.raises(SnapshotRefusedError, match="twice"):
        FolderWriter(tmp_path / "in", [FolderMember("a", 1)])
    assert not (tmp_path / "out").exists()


def test_contents_that_are_too_few_or_too_many_are_found(tmp_path: Path) -> None:
    for name in ("few", "many"):
        (tmp_path / name).mkdir()
    few, many = (
        FolderWriter(tmp_path / name, [FolderMember("a", 3), FolderMember("b", 2)]) for name in ("few", "many")
    )
    few.write(b"1234")
    with pytest.raises(SnapshotCorruptError, match="1 bytes of 'b' are missing"):
        few.finish()
    few.close()
    with pytest.raises(SnapshotCorruptError, match="1 bytes more"):
        many.write(b"123456")


def test_limits_hold(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for limits in (SnapshotLimits(files=4), SnapshotLimits(size=300_001)):
        with pytest.raises(SnapshotRefusedError, match="allowed"):
            hash_folder(saved, limits)
        with pytest.raises(SnapshotRefusedError, match="allowed"):
            FolderWriter(tmp_path / "in", members(saved), limits)
    assert list((tmp_path / "in").iterdir()) == []


def test_a_file_that_becomes_shorter_while_it_is_read_is_found(saved: Path) -> None:
    for opened in (open_archive(saved), open_contents(saved, members(saved))):
        os.truncate(saved / "state" / "torch.pt", 300_000)
        with opened:
            opened.read(10)
            os.truncate(saved / "state" / "torch.pt", 299_000)
            with pytest.raises(SnapshotCorruptError, match="shorter by"):
                opened.read()


def test_what_was_saved_becomes_the_snapshot_itself(saved: Path, tmp_path: Path) -> None:
    inode, contents, expected = saved.stat().st_ino, tree(saved), pack(saved, tmp_path / "file")
    assert keep(saved, tmp_path / "kept") == expected
    assert (tmp_path / "kept").stat().st_ino == inode
    assert tree(tmp_path / "kept") == contents
    assert not saved.exists()


def test_a_file_with_a_second_name_is_copied(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "second").hardlink_to(saved / "hopyard.json")
    info = keep(saved, tmp_path / "kept")
    (tmp_path / "second").write_text("changed")
    assert hash_file(tmp_path / "kept") == info


def test_what_no_snapshot_may_hold_is_not_kept(saved: Path, tmp_path: Path) -> None:
    (saved / "state" / "link").symlink_to("/etc/passwd")
    with pytest.raises(SnapshotRefusedError, match="neither a file nor a folder"):
        keep(saved, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("there", ["nothing", "folder", "file"])
@pytest.mark.parametrize("comes", ["folder", "file"])
def test_a_snapshot_that_is_there_stays(saved: Path, tmp_path: Path, there: str, comes: str) -> None:
    info = pack(saved, tmp_path / "file")
    target = tmp_path / info.sha256
    if there == "file":
        pack(saved, target)
    elif there == "folder":
        unpack(tmp_path / "file", target, info.sha256)
    if target.exists():
        os.utime(target, (1, 1))
    partial = saved if comes == "folder" else tmp_path / "file"
    settle(partial, target)
    assert not partial.exists()
    assert target.stat().st_mtime > 1
    with open_packed(target) as packed:
        (tmp_path / "again").write_bytes(packed.read())
    assert hash_file(tmp_path / "again") == info


def test_what_cannot_be_settled_is_an_error(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        settle(saved, tmp_path / "no folder" / "x")
    assert saved.exists()


def test_a_snapshot_is_loaded_where_it_lies_and_a_packed_one_unpacked(saved: Path, tmp_path: Path) -> None:
    info = pack(saved, tmp_path / "file")
    assert loadable(saved, info.sha256, tmp_path / "unpacked") == saved
    assert loadable(tmp_path / "file", info.sha256, tmp_path / "unpacked") == tmp_path / "unpacked"
    assert tree(tmp_path / "unpacked") == tree(saved)
    with (saved / "state" / "torch.pt").open("r+b") as file:
        first = file.read(1)
        file.seek(0)
        file.write(bytes([first[0] ^ 1]))
    with pytest.raises(SnapshotCorruptError, match=f"expected {info.sha256}"):
        loadable(saved, info.sha256, tmp_path / "other")


def test_sizes_and_deletions_know_both_kinds(saved: Path, tmp_path: Path) -> None:
    packed = tmp_path / "file"
    info = pack(saved, packed)
    assert (size_of(saved), size_of(packed), size_of(tmp_path / "none")) == (300_002, info.size, 0)
    for path in (saved, packed, tmp_path / "none"):
        remove(path)
        assert not path.exists()


def test_a_pipe_in_place_of_a_packed_snapshot_is_damage_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "snapshot")
    with pytest.raises(SnapshotCorruptError, match="neither a folder nor a file"):
        open_packed(tmp_path / "snapshot")
