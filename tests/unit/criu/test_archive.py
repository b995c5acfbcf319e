"""Tests of the packed file of a process snapshot: packing, unpacking, and damaged files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hopyard._runtime.criu.archive import pack, unpack
from hopyard._runtime.snapshot_file import SnapshotCorruptError, SnapshotFileInfo, SnapshotRefusedError, hash_file
from tests.damage import flip

pytestmark = pytest.mark.quick


@pytest.fixture
def snapshot(tmp_path: Path) -> tuple[Path, SnapshotFileInfo]:
    """A packed process snapshot with one file of each kind: image, code, link, output and pipe."""
    images, folder = tmp_path / "images", tmp_path / "folder"
    images.mkdir()
    (images / "pages-1.img").write_bytes(os.urandom(300_000) + bytes(3_000_000))
    (folder / "code").mkdir(parents=True)
    (folder / "code" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "code" / "run.sh").chmod(0o750)
    (folder / "code" / "data").symlink_to("/data/digits")
    (folder / "output").write_text("line 1\nline 2\n")
    os.mkfifo(folder / "pipe")
    file = tmp_path / "packed"
    info = pack(file, {"kept": {"rate": 0.1}}, images, folder, instead={"output": b"line 2\n"}, threads=2)
    return file, info


def test_there_and_back(snapshot: tuple[Path, SnapshotFileInfo], tmp_path: Path) -> None:
    file, info = snapshot
    assert hash_file(file) == info
    assert info.size < 400_000
    images, folder = tmp_path / "there" / "images", tmp_path / "there" / "folder"
    assert unpack(file, info.sha256, images, folder) == {"kept": {"rate": 0.1}}
    assert (images / "pages-1.img").read_bytes() == (tmp_path / "images" / "pages-1.img").read_bytes()
    assert stat.S_IMODE((folder / "code" / "run.sh").stat().st_mode) == 0o750
    assert os.readlink(folder / "code" / "data") == "/data/digits"
    assert stat.S_ISFIFO((folder / "pipe").stat().st_mode)
    assert (folder / "output").read_text() == "line 2\n"


@pytest.mark.parametrize("place", [0.001, 0.5, 0.999])
def test_a_damaged_one_is_told_and_leaves_nothing(
    snapshot: tuple[Path, SnapshotFileInfo], tmp_path: Path, place: float
) -> None:
    file, info = snapshot
    flip(file, place)
    with pytest.raises(SnapshotCorruptError):
        unpack(file, info.sha256, tmp_path / "i", tmp_path / "f")
    assert not (tmp_path / "i").exists()
    assert not (tmp_path / "f").exists()


def test_one_that_ends_early_is_told(snapshot: tuple[Path, SnapshotFileInfo], tmp_path: Path) -> None:
    file, info = snapshot
    file.write_bytes(file.read_bytes()[: info.size // 2])
    with pytest.raises(SnapshotCorruptError):
        unpack(file, info.sha256, tmp_path / "i", tmp_path / "f")


def test_what_is_no_such_snapshot_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other"
    file.write_text("weights")
    with pytest.raises(SnapshotRefusedError, match="is no snapshot of a process"):
        unpack(file, hash_file(file).sha256, tmp_path / "i", tmp_path / "f")


def test_a_file_that_cannot_be_written_does_not_stay(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    with pytest.raises(FileNotFoundError):
        pack(tmp_path / "packed", {}, tmp_path / "images", tmp_path / "gone", instead={})
    assert not (tmp_path / "packed").exists()
