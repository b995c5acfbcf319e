"""Tests of the archive file of exported experiments: it is read back exactly, or refused as a whole."""

from __future__ import annotations

import json
import os
import random
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hopyard.client.transfer.archive import MANIFEST, ArchiveReader, ArchiveWriter
from hopyard.errors import AlreadyExists, DataLoss, HopyardError, InvalidInput, NotFound

pytestmark = pytest.mark.quick

NOISE = random.Random(1).randbytes(3_000_000)
CONTENTS = {"journal.jsonl": b"one\ntwo\n" * 1000, "snapshots/ab": NOISE, "empty": b""}


def written(path: Path, about: dict[str, Any] | None = None) -> Path:
    with ArchiveWriter(path) as archive:
        for name, data in CONTENTS.items():
            archive.add(name, [data[start : start + 70_000] for start in range(0, len(data), 70_000)])
        archive.finish(about or {"hopyard": "0.1.0", "stream": "x"})
    return path


def read(path: Path) -> dict[str, bytes]:
    with ArchiveReader(path) as archive:
        archive.verify()
        return {name: b"".join(archive.unpacked(name)) for name in archive.manifest.members}


def rewritten(path: Path, **changes: Any) -> Path:
    """Write a copy of an archive with changed fields of the manifest, and return its path."""
    other = path.with_suffix(".other")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(other, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == MANIFEST:
                data = json.dumps({**json.loads(data), **changes}).encode()
            new.writestr(name, data)
    return other


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "a.hopyard")
    assert read(path) == CONTENTS
    assert path.stat().st_size < len(NOISE) + 20_000  # The journal is compressed.
    assert os.listdir(tmp_path) == ["a.hopyard"]
    with ArchiveReader(path) as archive:
        assert archive.manifest.about["stream"] == "x"
        assert max(len(chunk) for chunk in archive.unpacked("snapshots/ab")) <= 1024 * 1024


def test_equal_contents_give_equal_files(tmp_path: Path) -> None:
    one, two = written(tmp_path / "a"), written(tmp_path / "b")
    assert one.read_bytes() == two.read_bytes()


def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    whole = written(tmp_path / "a").read_bytes()
    cut = tmp_path / "cut"
    for length in (0, 1, 100, 10_000, len(whole) // 2, len(whole) - 1000, len(whole) - 1):
        cut.write_bytes(whole[:length])
        with pytest.raises(DataLoss, match="not a complete file from hopyard export"):
            read(cut)


def test_an_altered_byte_is_found_wherever_it_is(tmp_path: Path) -> None:
    whole = bytearray(written(tmp_path / "a").read_bytes())
    other = tmp_path / "other"
    rng = random.Random(7)
    for place in [rng.randrange(len(whole) - 600) for _ in range(20)]:
        whole[place] ^= 0x55
        other.write_bytes(whole)
        whole[place] ^= 0x55
        with pytest.raises(HopyardError, match=r"truncated or was altered|not a complete file from hopyard export"):
            read(other)


def test_members_that_are_not_what_the_manifest_says_are_found(tmp_path: Path) -> None:
    path = written(tmp_path / "a")
    with ArchiveReader(path) as archive:
        members = archive.manifest.about["members"]
    for change in ({"sha256": "0" * 64}, {"packed_bytes": 3}):
        changed = {**members, "empty": {**members["empty"], **change}}
        with pytest.raises(DataLoss, match="member empty is not what the manifest promises"):
            read(rewritten(path, members=changed))
    with pytest.raises(DataLoss, match="member gone cannot be read"):
        read(rewritten(path, members={**members, "gone": members["empty"]}))
    for size in (0, 10, 10**9):
        changed = {**members, "journal.jsonl": {**members["journal.jsonl"], "size_bytes": size}}
        with pytest.raises(DataLoss, match=r"journal.jsonl has not the size"):
            read(rewritten(path, members=changed))
    with pytest.raises(DataLoss, match="members: "):
        read(rewritten(path, members={"a": {}}))


def test_a_newer_format_says_so(tmp_path: Path) -> None:
    path = rewritten(written(tmp_path / "a"), version=2, hopyard="9.0")
    with pytest.raises(InvalidInput, match=r"format is version 2, written by Hopyard 9.0; .* use a newer one"):
        read(path)


def test_what_is_no_export_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no such file"):
        read(tmp_path / "nothing")
    text = tmp_path / "text"
    text.write_text("hello")
    with pytest.raises(DataLoss, match="not a complete file from hopyard export"):
        read(text)
    shutil.make_archive(str(tmp_path / "some"), "zip", tmp_path, "text")
    with pytest.raises(InvalidInput, match="a zip file, but not an exported experiment"):
        read(tmp_path / "some.zip")
    with pytest.raises(InvalidInput, match="not one that hopyard export wrote"):
        read(rewritten(written(tmp_path / "a"), format="else"))


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("mine")
    with pytest.raises(AlreadyExists, match="choose another name"):
        written(path)
    assert path.read_text() == "mine"


def test_an_export_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with ArchiveWriter(tmp_path / "a") as archive:
            archive.add("journal.jsonl", [b"x"])
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        fail()
    assert os.listdir(tmp_path) == []
