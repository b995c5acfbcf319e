"""Tests of unpacked bundles: every kind of damage is found and repaired, and what a program may leave there is not damage."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hopyard._runtime.bundle import BundleCorrupt, pack, recorded_files
from hopyard._runtime.untrusted.unpacked_bundle import (
    ALWAYS_HASHED_BYTES,
    ALWAYS_HASHED_FILES,
    SETTLED_SECONDS,
    BundleDifference,
    UnpackedBundle,
    listed,
)
from tests.damage import in_turn, replace_by_folder, replace_by_pipe

pytestmark = pytest.mark.quick

FILES = {"train.py": b"x = 1\n", "lib/__init__.py": b"", "lib/deep/part.py": b"y = 2\n", "data.csv": b"1,2\n"}
SCRIPT = "run.sh"


class Unpacked:
    """A bundle that is unpacked in a folder, and its packed form."""

    def __init__(self, tmp_path: Path) -> None:
        source = tmp_path / "source"
        for name, content in FILES.items():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes(content)
        (source / SCRIPT).write_text("#!/bin/sh\n")
        (source / SCRIPT).chmod(0o755)
        bundle = pack(source)
        self.sha256 = bundle.sha256
        self.packed = tmp_path / "bundle.packed"
        self.packed.write_bytes(bundle.data)
        self.folder = tmp_path / "code"
        self.code = UnpackedBundle(self.folder, bundle.sha256, recorded_files(self.packed, bundle.sha256))
        self.code.repair(self.packed, self.code.differences())

    def found(self) -> list[str]:
        return list(map(str, self.code.differences()))

    def edit(self, name: str, content: bytes) -> None:
        """Change a file in place, as an editor does that makes it writable for a moment."""
        path = self.folder / name
        mode, status = path.stat().st_mode, path.stat()
        path.chmod(0o600)
        path.write_bytes(content)
        path.chmod(mode & 0o777)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.fixture
def unpacked(tmp_path: Path) -> Unpacked:
    return Unpacked(tmp_path)


def test_a_new_folder_has_the_files_of_the_bundle_read_only(unpacked: Unpacked) -> None:
    assert unpacked.found() == []
    assert {name: (unpacked.folder / name).read_bytes() for name in FILES} == FILES
    assert (unpacked.folder / "train.py").stat().st_mode & 0o777 == 0o400
    assert (unpacked.folder / SCRIPT).stat().st_mode & 0o777 == 0o500
    assert (unpacked.folder / "lib").stat().st_mode & 0o777 == 0o700


def _replace_by_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere.txt"))
    path.symlink_to("elsewhere.txt")


def _make_read_only(path: Path) -> None:
    path.chmod(0o555)


DAMAGES: dict[str, tuple[Callable[[Unpacked], object], list[str]]] = {
    "edited": (lambda it: it.edit("train.py", b"x = 2\n"), ["train.py: its content differs"]),
    "longer": (lambda it: it.edit("train.py", b"x = 10\n"), ["train.py: has 7 bytes, recorded are 6"]),
    "empty": (lambda it: it.edit("lib/deep/part.py", b""), ["lib/deep/part.py: has 0 bytes, recorded are 6"]),
    "missing": (lambda it: (it.folder / "train.py").unlink(), ["train.py: is missing"]),
    "mode": (lambda it: (it.folder / "train.py").chmod(0o644), ["train.py: its mode is 644, recorded is 400"]),
    "not executable": (lambda it: (it.folder / SCRIPT).chmod(0o400), [f"{SCRIPT}: its mode is 400, recorded is 500"]),
    "setuid": (lambda it: (it.folder / SCRIPT).chmod(0o4500), [f"{SCRIPT}: its mode is 4500, recorded is 500"]),
    "link": (
        lambda it: _replace_by_link(it.folder / "train.py"),
        ["train.py: is a link to elsewhere.txt, recorded is a file"],
    ),
    "pipe": (
        lambda it: replace_by_pipe(it.folder / "train.py"),
        ["train.py: is a device, a pipe or a socket, recorded is a file"],
    ),
    "folder": (lambda it: replace_by_folder(it.folder / "train.py"), ["train.py: is a folder, recorded is a file"]),
    "added module": (
        lambda it: (it.folder / "random.py").write_text(""),
        ["random.py: is a file that the code does not have"],
    ),
    "added byte code": (
        lambda it: (it.folder / "lib" / "random.pyc").write_bytes(b""),
        ["lib/random.pyc: is a file that the code does not have"],
    ),
    "added extension": (
        lambda it: (it.folder / "random.abi3.so").write_bytes(b""),
        ["random.abi3.so: is a file that the code does not have"],
    ),
    "added module in an added folder": (
        in_turn(lambda it: (it.folder / "json").mkdir(), lambda it: (it.folder / "json" / "__init__.py").touch()),
        ["json/__init__.py: is a file that the code does not have"],
    ),
    "added link to a folder": (
        lambda it: (it.folder / "json").symlink_to("/usr/lib"),
        ["json: is a link to /usr/lib that the code does not have"],
    ),
    "mode of the whole folder": (lambda it: it.folder.chmod(0o755), ["the folder: its mode is 755, recorded is 700"]),
    "everything read-only": (
        lambda it: list(map(_make_read_only, (it.folder, *it.folder.rglob("*")))),
        ["the folder: its mode is 555, recorded is 700"],
    ),
    "folder is a link": (
        in_turn(
            lambda it: (it.folder / "lib").rename(it.folder / "other"),
            lambda it: (it.folder / "lib").symlink_to("other"),
        ),
        [
            "lib: is a link to other, recorded is a folder",
            "lib/__init__.py: is missing",
            "lib/deep/part.py: is missing",
            "other/__init__.py: is a file that the code does not have",
            "other/deep/part.py: is a file that the code does not have",
        ],
    ),
    "folder is a file": (
        in_turn(
            lambda it: (it.folder / "lib").rename(it.folder.parent / "other"), lambda it: (it.folder / "lib").touch()
        ),
        ["lib: is a file, recorded is a folder", "lib/__init__.py: is missing", "lib/deep/part.py: is missing"],
    ),
    "mode of a folder": (
        lambda it: (it.folder / "lib").chmod(0o777),
        ["lib: its mode is 777, recorded is 700"],
    ),
    "closed folder": (
        lambda it: (it.folder / "lib").chmod(0o000),
        ["lib: its mode is 0, recorded is 700"],
    ),
    "whole folder": (lambda it: it.folder.rename(it.folder.with_name("gone")), ["the folder: is missing"]),
    "whole folder is a link": (
        in_turn(lambda it: it.folder.rename(it.folder.with_name("gone")), lambda it: it.folder.symlink_to("gone")),
        ["the folder: is no folder"],
    ),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_each_damage_is_found_and_repaired(unpacked: Unpacked, kind: str) -> None:
    harm, expected = DAMAGES[kind]
    harm(unpacked)
    found = unpacked.code.differences()
    assert list(map(str, found)) == expected
    unpacked.code.repair(unpacked.packed, found)
    assert unpacked.found() == []
    assert {name: (unpacked.folder / name).read_bytes() for name in FILES} == FILES
    assert not list(unpacked.folder.parent.glob(".*")), "no partial file is left"


def test_what_python_and_programs_leave_is_not_damage(unpacked: Unpacked) -> None:
    byte_code = unpacked.folder / "lib" / "__pycache__"
    byte_code.mkdir()
    (byte_code / "part.cpython-311.pyc").write_bytes(b"stale")
    (unpacked.folder / "cache").mkdir()
    (unpacked.folder / "cache" / "weights.bin").write_bytes(b"1")
    (unpacked.folder / "cache" / "latest").symlink_to("weights.bin")
    os.mkfifo(unpacked.folder / "cache" / "pipe")
    assert unpacked.found() == []
    assert not byte_code.exists(), "it could be the byte code of another source"
    assert (unpacked.folder / "cache" / "weights.bin").exists()


def test_a_damaged_bundle_repairs_nothing(unpacked: Unpacked) -> None:
    unpacked.edit("train.py", b"x = 2\n")
    found = unpacked.code.differences()
    unpacked.packed.write_bytes(unpacked.packed.read_bytes()[:-1])
    with pytest.raises(BundleCorrupt, match="expected"):
        unpacked.code.repair(unpacked.packed, found)
    unpacked.packed.unlink()
    with pytest.raises(BundleCorrupt, match="No such file"):
        unpacked.code.repair(unpacked.packed, found)
    os.mkfifo(unpacked.packed)
    with pytest.raises(BundleCorrupt, match="not a regular file"):
        unpacked.code.repair(unpacked.packed, found)
    assert unpacked.found() == ["train.py: its content differs"]


def test_a_copy_has_the_files_of_the_bundle_only(unpacked: Unpacked, tmp_path: Path) -> None:
    (unpacked.folder / "weights.bin").write_bytes(b"1")
    unpacked.code.copy(tmp_path / "copy")
    copied = {
        str(path.relative_to(tmp_path / "copy")): path.stat().st_mode & 0o777
        for path in (tmp_path / "copy").rglob("*")
        if path.is_file()
    }
    assert copied == {**dict.fromkeys(FILES, 0o600), SCRIPT: 0o700}


def _large(tmp_path: Path, now: Callable[[], int]) -> tuple[UnpackedBundle, Path]:
    """Unpack a bundle that is too large to be hashed at each comparison."""
    bundle = pack(None, extra={f"m{n}.py": b"%d" % n for n in range(ALWAYS_HASHED_FILES + 1)})
    packed = tmp_path / "packed"
    packed.write_bytes(bundle.data)
    code = UnpackedBundle(tmp_path / "code", bundle.sha256, recorded_files(packed, bundle.sha256), clock=now)
    code.repair(packed, code.differences())
    return code, packed


def test_the_hash_of_a_settled_file_is_cached_until_its_stamp_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [0]
    code, _ = _large(tmp_path, lambda: times[0])
    hashed: list[str] = []
    from hopyard._runtime.untrusted import unpacked_bundle

    original = unpacked_bundle._digest

    def digest(path: Path) -> object:
        hashed.append(path.name)
        return original(path)

    monkeypatch.setattr(unpacked_bundle, "_digest", digest)

    def count() -> int:
        hashed.clear()
        assert code.differences() == []
        return len(hashed)

    assert [count(), count()] == [ALWAYS_HASHED_FILES + 1] * 2, "no file is old enough by this clock"
    newest = max((code.folder / name).stat().st_ctime_ns for name in code.files)
    times[0] = newest + int(SETTLED_SECONDS * 1e9)
    assert [count(), count()] == [ALWAYS_HASHED_FILES + 1, 0]

    file = code.folder / "m7.py"
    before = file.stat()
    file.chmod(0o600)
    file.write_bytes(b"8")
    file.chmod(0o400)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert code.differences() == [BundleDifference("m7.py", "its content differs")]


def test_a_small_bundle_is_always_hashed(unpacked: Unpacked, monkeypatch: pytest.MonkeyPatch) -> None:
    from hopyard._runtime.untrusted import unpacked_bundle

    assert sum(one.size for one in unpacked.code.files.values()) < ALWAYS_HASHED_BYTES
    monkeypatch.setattr(unpacked_bundle, "_digest", lambda path: ("", (0, 0, 0, 0, 0)))
    assert len(unpacked.code.differences()) == len(unpacked.code.files)


def test_a_long_list_of_differences_is_cut() -> None:
    many = [BundleDifference(f"m{n}.py", "is missing") for n in range(7)]
    assert listed(many[:1]) == "m0.py: is missing"
    assert listed(many, 2) == "m0.py: is missing; m1.py: is missing; and 5 more"


def test_deeply_nested_folders_are_compared(unpacked: Unpacked) -> None:
    deep = unpacked.folder
    for _ in range(sys.getrecursionlimit() // 2):
        deep = deep / "d"
    os.makedirs(deep)
    (deep / "more.py").touch()
    assert [one.found for one in unpacked.code.differences()] == ["is a file that the code does not have"]
