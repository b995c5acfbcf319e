"""Tests of the limits for compressed data and archives of unknown origin: small inputs that would expand to gigabytes are refused."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from contextlib import suppress
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from hopyard._runtime.bundle import BundleError, code_files, pack
from hopyard._runtime.untrusted.tar_members import DamagedArchive, RefusedArchive, members
from hopyard._runtime.untrusted.zstd_frames import MAX_WINDOW_BYTES, DecompressedStream, FedDecompressor

MIB = 2**20
BLOCK = 128 * 1024
GROWTH = 64 * MIB


def frame(head: bytes, blocks: int, *, stated: int | None = None, window_log: int = 21) -> bytes:
    """Return a Zstandard frame with `head` and then `blocks` blocks of 128 KiB zeros, each of 4 bytes.

    Args:
        head: At most 128 KiB.
        blocks: Number of blocks of zeros.
        stated: The size of the content in the header, right or wrong; None: the header has none.
        window_log: Binary logarithm of the window.
    """
    size = b"" if stated is None else stated.to_bytes(8, "little")
    begin = zstandard.FRAME_HEADER + bytes([0xC0 if size else 0, (window_log - 10) << 3]) + size
    raw = (len(head) << 3).to_bytes(3, "little") + head
    zeros = (BLOCK << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    return begin + raw + zeros * blocks + (1).to_bytes(3, "little")


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def tar(*infos: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.TarFile(fileobj=buffer, mode="w", format=form) as opened:
        for info, content in infos:
            info.size = len(content)
            opened.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def named(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


ZEROS = 7280
"""Blocks of zeros: 910 MiB, from 29 kB."""

BOMBS = {
    "with size": frame(header("x", 200 * MIB), ZEROS, stated=512 + ZEROS * BLOCK),
    "without size": frame(header("x", 200 * MIB), ZEROS),
    "lying size": frame(header("x", 200 * MIB), ZEROS, stated=1024),
    "nested tar": frame(header("inner.tar", 200 * MIB) + header("x", 199 * MIB), ZEROS),
    "huge window": frame(header("x", 200 * MIB), ZEROS, window_log=31),
    "many megabytes of name": frame(header("././@LongLink", 200 * MIB, tarfile.GNUTYPE_LONGNAME), ZEROS),
    "many megabytes of records": frame(header("x", 200 * MIB, tarfile.XHDTYPE), ZEROS),
    "after the end": frame(b"", ZEROS),
}

_CHILD = """
import sys
from pathlib import Path
from hopyard._runtime.bundle import BundleError, code_hash
from hopyard_scheduler.experiments.stream_import import LineReader
from hopyard.errors import InvalidInput

def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024

data = sys.stdin.buffer.read()
before = peak()
try:
    if sys.argv[1] == "bundle":
        code_hash(data)
    else:
        reader = LineReader()
        reader.feed(data)
        while reader.lines(500):
            pass
        reader.end()
    print("accepted")
except (BundleError, InvalidInput) as error:
    print("refused:", error)
print(peak() - before)
"""


def fed_to_child(kind: str, data: bytes) -> tuple[str, int]:
    """Read `data` in a new process. Return what it says, and how many bytes its peak of resident memory grew meanwhile."""
    done = subprocess.run([sys.executable, "-c", _CHILD, kind], input=data, capture_output=True, check=True)
    said, growth = done.stdout.decode().splitlines()
    return said, int(growth)


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_as_a_bundle_costs_little_memory(name: str) -> None:
    assert len(BOMBS[name]) < 31_000
    said, growth = fed_to_child("bundle", BOMBS[name])
    assert said.startswith("refused: it is no bundle") or name == "after the end"
    assert growth < GROWTH


@pytest.mark.parametrize(
    "data",
    [frame(b"", ZEROS), frame(b"", ZEROS, stated=1024), frame(b"", ZEROS, window_log=31), frame(b"\n" * BLOCK, ZEROS)],
    ids=["without size", "lying size", "huge window", "with lines"],
)
def test_a_bomb_as_a_journal_costs_little_memory(data: bytes) -> None:
    said, growth = fed_to_child("journal", data)
    assert said.startswith("refused: journal: ")
    assert growth < GROWTH


def test_many_short_lines_cost_little_memory() -> None:
    said, growth = fed_to_child("journal", zstandard.compress(bytes(range(11, 61)) * 4 + b"{}\n" * 2_500_000, 1))
    assert said == "accepted"
    assert growth < GROWTH


@pytest.mark.quick
@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (tarfile.SYMTYPE, "a symbolic link"),
        (tarfile.LNKTYPE, "a link"),
        (tarfile.CHRTYPE, "a device"),
        (tarfile.BLKTYPE, "a device"),
        (tarfile.FIFOTYPE, "a pipe"),
        (tarfile.GNUTYPE_SPARSE, "a sparse file"),
        (tarfile.DIRTYPE, "a folder"),
    ],
)
def test_members_other_than_files_are_refused_by_name(kind: bytes, shown: str) -> None:
    data = zstandard.compress(tar((named("train.py"), b"x"), (named("odd", kind, "train.py"), b"")))
    with pytest.raises(BundleError, match=f"member 'odd' is {shown}; allowed: plain files"):
        code_files(data)


@pytest.mark.quick
@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../x", "a//x", "./x", ".."])
def test_names_outside_of_the_archive_are_refused(name: str) -> None:
    data = zstandard.compress(tar((named(name), b"x")))
    with pytest.raises(BundleError, match="allowed: names that stay inside"):
        code_files(data)


@pytest.mark.quick
def test_sparse_files_of_pax_are_refused() -> None:
    info = named("x")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "x"}
    with pytest.raises(RefusedArchive, match="'x' is a sparse file"):
        list(members(io.BytesIO(tar((info, b"2\n0\n1\n"))), most=10, limit=MIB))


@pytest.mark.quick
def test_the_number_of_members_and_their_size_are_limited() -> None:
    data = tar(*((named(f"f{number}"), b"xy") for number in range(4)))
    assert len(list(members(io.BytesIO(data), most=4, limit=8))) == 4
    for most, limit in ((3, 8), (4, 7)):
        with pytest.raises(RefusedArchive, match=f"more than {most} members or {limit} bytes, at 'f3'"):
            list(members(io.BytesIO(data), most=most, limit=limit))


@pytest.mark.quick
@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_archives_of_other_programs_are_read(form: int) -> None:
    name = "/".join(["folder"] * 20) + "/" + "n" * 90 if form != tarfile.USTAR_FORMAT else "a/b"
    contents = {name: b"x" * 70_000, "empty": b"", "ünder": b"z"}
    data = tar(*((named(one), content) for one, content in contents.items()), form=form)
    read = members(io.BytesIO(data), most=10, limit=MIB)
    assert {member.name: b"".join(member.content.pieces()) for member in read} == contents
    assert [member.size for member in members(io.BytesIO(data), most=10, limit=MIB)] == [70_000, 0, 1]


@pytest.mark.quick
def test_an_archive_that_is_cut_off_is_damaged() -> None:
    data = tar((named("a"), b"x" * 2000), (named("b"), b"y"))
    for length in (0, 100, 512, 1000, 3000, 3072):
        with pytest.raises(DamagedArchive):
            list(members(io.BytesIO(data[:length]), most=10, limit=MIB))


@given(st.binary(max_size=600))
def test_no_bytes_cause_another_error(data: bytes) -> None:
    with pytest.raises(RefusedArchive):
        list(members(io.BytesIO(data + b"\1"), most=10, limit=MIB))
    fed = FedDecompressor(MIB)
    fed.feed(data)
    with suppress(RefusedArchive):
        fed.read()


@pytest.mark.quick
def test_content_within_the_limits_is_unchanged() -> None:
    content = b"".join(str(number).encode() for number in range(200_000))
    for packed in (zstandard.compress(content), frame(b"", 100)):
        stream, found = DecompressedStream(io.BytesIO(packed), 32 * MIB), b""
        while piece := stream.read(10**9):
            assert len(piece) <= MIB
            found += piece
        assert found == zstandard.ZstdDecompressor().decompressobj().decompress(packed)


@pytest.mark.quick
def test_the_largest_window_is_allowed() -> None:
    allowed = MAX_WINDOW_BYTES.bit_length() - 1
    assert DecompressedStream(io.BytesIO(frame(b"x", 0, window_log=allowed)), MIB).read(10) == b"x"
    with pytest.raises(RefusedArchive, match="window is 64 MiB, allowed are 32 MiB"):
        DecompressedStream(io.BytesIO(frame(b"x", 0, window_log=allowed + 1)), MIB)


def test_code_that_no_service_would_read_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "zeros.bin").write_bytes(bytes(20 * MIB))
    with pytest.raises(BundleError, match=r"compress to .*allowed is a factor of 200.*hopyardignore"):
        pack(tmp_path)
    assert code_files(pack(tmp_path, extra={"zeros.bin": b""}).data)
