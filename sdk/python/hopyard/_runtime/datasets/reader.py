"""Reading a partition as bytes: its size, its hash, and how many examples it has as far as its format says."""

from __future__ import annotations

import hashlib
import importlib
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hopyard.errors import InvalidInput, NotFound

_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Content:
    """What a file or folder holds: `size` in bytes, `sha256`, and `examples` or None."""

    size: int
    sha256: str
    examples: int | None


Stamp = tuple[tuple[str, int, int, int], ...]
"""Of each file its name, bytes, time of change and inode: while it is the same, so is the content."""


def stamp(path: Path) -> Stamp:
    """What can be told of a file or folder without reading it.

    Raises:
        NotFound: There is nothing.
        InvalidInput: It is neither a regular file nor a folder of such.
    """
    return tuple(_stamp_of(file, name) for name, file in _files(path))


def content(path: Path, give_up: Callable[[], bool] = lambda: False) -> Content:
    """Reads a file or folder. A folder's hash is that of its files' names and hashes, in order of name.

    Args:
        path: What to read.
        give_up: Asked again and again; when it says so, the reading ends.

    Raises:
        NotFound: There is nothing.
        InvalidInput: It is neither a regular file nor a folder of such, one at least.
        InterruptedError: It was given up.
    """
    files = _files(path)
    if not path.is_dir():
        size, sha256 = _hash(path, give_up)
        return Content(size, sha256, examples_in(path))
    whole, total = hashlib.sha256(), 0
    for name, file in files:
        size, sha256 = _hash(file, give_up)
        total += size
        whole.update(f"{sha256}  {name}\n".encode())
    return Content(total, whole.hexdigest(), None)


def examples_in(path: Path) -> int | None:
    """How many examples a file has: the rows of a Parquet file, the one first length of all arrays of an npz; None: not known."""
    if path.suffix == ".npz":
        return _examples_in_npz(path)
    if path.suffix == ".parquet":
        return _examples_in_parquet(path)
    return None


def _files(path: Path) -> list[tuple[str, Path]]:
    """The files of a folder by their names in it, or the file itself under an empty name."""
    if path.is_file():
        return [("", path)]
    if not path.exists():
        raise NotFound(f"{path}: there is no such file or folder")
    if not path.is_dir():
        raise InvalidInput(f"{path}: needed is a regular file, or a folder of such")
    found: list[tuple[str, Path]] = []
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in names:
            file = Path(folder) / name
            if not file.is_file():
                raise InvalidInput(f"{file}: needed is a regular file")
            found.append((file.relative_to(path).as_posix(), file))
    if not found:
        raise InvalidInput(f"{path}: there is no file in this folder")
    return sorted(found)


def _stamp_of(file: Path, name: str) -> tuple[str, int, int, int]:
    found = file.stat()
    return name, found.st_size, found.st_mtime_ns, found.st_ino


def _hash(file: Path, give_up: Callable[[], bool]) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    with file.open("rb") as opened:
        while chunk := opened.read(_CHUNK):
            if give_up():
                raise InterruptedError(f"{file}: given up")
            digest.update(chunk)
            size += len(chunk)
    if size and not file.stat().st_size:
        raise InvalidInput(f"{file}: needed is a regular file; this one is made up as it is read")
    return size, digest.hexdigest()


def first_lengths(path: Path) -> dict[str, int]:
    """The first length of each array of an npz, from the arrays' headers; -1: it has none.

    Raises:
        ValueError: It is no npz, or one with arrays of Python objects, which nobody here unpickles.
        OSError: It cannot be read.
    """
    from numpy.lib import format as npy  # not above: a node agent needs NumPy for nothing else

    lengths: dict[str, int] = {}
    try:
        with zipfile.ZipFile(path) as packed:
            for name in packed.namelist():
                with packed.open(name) as member:
                    version = npy.read_magic(member)
                    first = version == (1, 0)
                    read = npy.read_array_header_1_0 if first else npy.read_array_header_2_0
                    shape, _, kind = read(member)
                if kind.hasobject:
                    raise ValueError(f"array {name.removesuffix('.npy')} holds Python objects")
                lengths[name.removesuffix(".npy")] = shape[0] if shape else -1
    except (zipfile.BadZipFile, EOFError) as error:
        raise ValueError(str(error)) from error
    return lengths


def _examples_in_npz(path: Path) -> int | None:
    try:
        lengths = set(first_lengths(path).values())
    except (OSError, ValueError):
        return None
    only = lengths.pop() if len(lengths) == 1 else -1
    return only if only >= 0 else None


def _examples_in_parquet(path: Path) -> int | None:
    """Where pyarrow is not installed, or cannot read it, nobody knows."""
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        return None
    try:
        return int(parquet.read_metadata(path).num_rows)
    except (OSError, ValueError):
        return None
