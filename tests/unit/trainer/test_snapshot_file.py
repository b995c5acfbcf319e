from __future__ import annotations

import io
import os
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopyard._runtime.snapshot_file import (
    SnapshotCorruptError,
    SnapshotFileInfo,
    SnapshotLimits,
    SnapshotRefusedError,
    hash_file,
    pack,
    pack_entry,
    unpack,
)

pytestmark = pytest.mark.quick

NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=60).filter(
    lambda name: name not in (".", "..") and len(name.encode()) <= 200
)


def tree(root: Path) -> dict[str, bytes | None]:
    """Return the contents of everything below `root` by relative name; None for a folder."""
    return {
        str(path.relative_to(root)): None if path.is_dir() else path.read_bytes() for path in sorted(root.rglob("*"))
    }


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    root = tmp_path / "snapshot"
    (root / "state" / "empty").mkdir(parents=True)
    (root / "state" / "torch.pt").write_bytes(os.urandom(3000))
    (root / "hopyard.json").write_text("{}")
    return root


@pytest.mark.merge
@given(files=st.dictionaries(NAMES, st.binary(max_size=2000), max_size=6), folders=st.sets(NAMES, max_size=3))
@settings(max_examples=40, deadline=None)
def test_what_is_packed_comes_back(files: dict[str, bytes], folders: set[str]) -> None:
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
        info = pack(source, base / "file")
        assert info == hash_file(base / "file")
        assert info.size == (base / "file").stat().st_size
        unpack(base / "file", base / "again", info.sha256)
        assert tree(base / "again") == tree(source)


def test_equal_contents_are_equal_files(directory: Path, tmp_path: Path) -> None:
    first = pack(directory, tmp_path / "first")
    twin = tmp_path / "twin"
    (twin / "state").mkdir(parents=True)
    # The same files in another order, at another time, with other modes.
    (twin / "hopyard.json").write_bytes((directory / "hopyard.json").read_bytes())
    (twin / "state" / "torch.pt").write_bytes((directory / "state" / "torch.pt").read_bytes())
    (twin / "state" / "torch.pt").chmod(0o600)
    (twin / "state" / "empty").mkdir()
    os.utime(twin / "hopyard.json", (1, 1))
    assert pack(twin, tmp_path / "second") == first
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_the_format_is_frozen(tmp_path: Path) -> None:
    """Check the hash of a fixed snapshot: hashes name snapshots for ever, so a change of this value breaks every store."""
    (tmp_path / "d" / "state").mkdir(parents=True)
    (tmp_path / "d" / "state" / "x").write_text("5.0")
    (tmp_path / "d" / "hopyard.json").write_text("{}\n")
    sha256 = "f694eb5bc4ad144c8008372f9a2ca662a704d77c507b1fa98d3f81017da9e376"
    assert pack(tmp_path / "d", tmp_path / "f") == SnapshotFileInfo(sha256, 10240)


@pytest.mark.merge
@given(place=st.integers(min_value=0, max_value=10**9), bit=st.integers(0, 7))
@settings(max_examples=50, deadline=None)
def test_any_flipped_bit_is_found(place: int, bit: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        (base / "d").mkdir()
        (base / "d" / "x").write_bytes(b"weights" * 100)
        info = pack(base / "d", base / "file")
        content = bytearray((base / "file").read_bytes())
        content[place % len(content)] ^= 1 << bit
        (base / "file").write_bytes(content)
        with pytest.raises(SnapshotCorruptError, match=r"has the hash .*; expected"):
            unpack(base / "file", base / "again", info.sha256)
        assert sorted(path.name for path in base.iterdir()) == ["d", "file"]


@pytest.mark.parametrize("keep", [0, 1, 512, 5000])
def test_a_truncated_file_is_found(keep: int, directory: Path, tmp_path: Path) -> None:
    info = pack(directory, tmp_path / "file")
    os.truncate(tmp_path / "file", keep)
    with pytest.raises(SnapshotCorruptError):
        unpack(tmp_path / "file", tmp_path / "again", info.sha256)


def archive(path: Path, *members: tarfile.TarInfo, cut: int | None = None) -> str:
    """Write an archive that the product never writes, and return its hash."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for one in members:
            tar.addfile(one, io.BytesIO(b"!" * one.size))
    path.write_bytes(buffer.getvalue()[:cut])
    return hash_file(path).sha256


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, link
    return info


@pytest.mark.parametrize(
    "members",
    [
        [member("../x", size=1)],
        [member("state/../../x", size=1)],
        [member("/etc/x", size=1)],
        [member("./x", size=1)],
        [member("a//x", size=1)],
        [member("link", tarfile.SYMTYPE, link="/etc/passwd")],
        [member("link", tarfile.SYMTYPE, link=".."), member("link/x", size=1)],
        [member("x", size=1), member("hard", tarfile.LNKTYPE, link="x")],
        [member("device", tarfile.CHRTYPE)],
        [member("device", tarfile.BLKTYPE)],
        [member("pipe", tarfile.FIFOTYPE)],
        [member("sparse", tarfile.GNUTYPE_SPARSE)],
        [member("x", size=1), member("x", size=2)],
        [member("x", size=1), member("x/y", size=1)],
        [member("missing/x", size=1)],
    ],
)
def test_members_that_are_not_allowed(members: list[tarfile.TarInfo], tmp_path: Path) -> None:
    sha256 = archive(tmp_path / "file", *members)
    with pytest.raises(SnapshotRefusedError):
        unpack(tmp_path / "file", tmp_path / "again", sha256)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_true_hash_of_half_an_archive_helps_nobody(tmp_path: Path) -> None:
    sha256 = archive(tmp_path / "file", member("x", size=5000), cut=2000)
    with pytest.raises(SnapshotCorruptError, match="not a snapshot archive"):
        unpack(tmp_path / "file", tmp_path / "again", sha256)


@pytest.mark.parametrize("limits", [SnapshotLimits(files=3), SnapshotLimits(size=2999)])
def test_limits_hold_both_ways(limits: SnapshotLimits, directory: Path, tmp_path: Path) -> None:
    with pytest.raises(SnapshotRefusedError):
        pack(directory, tmp_path / "file", limits=limits)
    assert not (tmp_path / "file").exists()
    info = pack(directory, tmp_path / "file")
    with pytest.raises(SnapshotRefusedError):
        unpack(tmp_path / "file", tmp_path / "again", info.sha256, limits=limits)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "snapshot"]


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("/etc/passwd"), os.mkfifo])
def test_only_files_and_folders_are_packed(make: object, directory: Path, tmp_path: Path) -> None:
    assert callable(make)
    make(directory / "state" / "odd")
    with pytest.raises(SnapshotRefusedError, match="neither a file nor a folder"):
        pack(directory, tmp_path / "file")


def test_an_entry_is_a_file_or_a_folder(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for odd in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(SnapshotRefusedError, match=f"{odd} is neither a file nor a folder"):
            pack_entry(odd, tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_unpacking_over_something_is_refused(directory: Path, tmp_path: Path) -> None:
    info = pack(directory, tmp_path / "file")
    with pytest.raises(FileExistsError):
        unpack(tmp_path / "file", directory, info.sha256)
    with pytest.raises(ValueError, match="64 lower-case hexadecimal digits"):
        unpack(tmp_path / "file", tmp_path / "again", info.sha256.upper())
