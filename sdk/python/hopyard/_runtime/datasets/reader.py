"""Reads a partition, a file or folder, and determines its size, hash and, if the format allows it, its number of examples."""

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
    """Properties of the data in a file or folder.

    Attributes:
        size: Size in bytes.
        sha256: Hash, 64 lower-case hexadecimal digits.
        examples: Number of examples; None: unknown.
    """

    size: int
    sha256: str
    examples: int | None


Stamp = tuple[tuple[str, int, int, int], ...]
"""Name, size, modification time and inode of each file; an equal stamp means unchanged content."""


def stamp(path: Path) -> Stamp:
    """Return name, size, modification time and inode of each file at a path, which reveal changes without reading the data.

    Raises:
        NotFound: The path does not exist.
        InvalidInput: The path is neither a regular file nor a non-empty folder of regular files.
    """
    return tuple(_stamp_of(file, name) for name, file in _files(path))


def content(path: Path, give_up: Callable[[], bool] = lambda: False) -> Content:
    """Read a file or folder, and return its size, hash and number of examples.

    The hash of a folder is computed from the names and hashes of its files, sorted by name; its number of examples is unknown.

    Args:
        path: File or folder.
        give_up: Called before each block is hashed; if it returns True, the reading is cancelled.

    Raises:
        NotFound: The path does not exist.
        InvalidInput: The path is neither a regular file nor a non-empty folder of regular files.
        InterruptedError: `give_up` returned True.
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
    """Return the number of examples in a file; None if unknown.

    For Parquet it is the number of rows, for npz the first dimension if it is the same for all arrays. It is unknown for other
    formats and for files that cannot be read.
    """
    if path.suffix == ".npz":
        return _examples_in_npz(path)
    if path.suffix == ".parquet":
        return _examples_in_parquet(path)
    return None


def _files(path: Path) -> list[tuple[str, Path]]:
    """Return pairs of a relative name and a path: all files of a folder, sorted, or a single file with an empty name.

    Raises:
        NotFound: The path does not exist.
        InvalidInput: The path is neither a regular file nor a non-empty folder of regular files.
    """
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
        raise InvalidInput(f"{file}: needed is a regular file; the content of this one is generated when it is read")
    return size, digest.hexdigest()


def first_lengths(path: Path) -> dict[str, int]:
    """Return the first dimension of each array in an npz file by array name, read from the array headers; -1 for a scalar.

    Raises:
        ValueError: The file is not an npz, or has arrays of Python objects, which are not unpickled.
        OSError: The file cannot be read.
    """
    from numpy.lib import format as npy  # Imported here because a node agent needs NumPy only for this.

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
    """Return the number of rows in a Parquet file; None if pyarrow is not installed or cannot read the file."""
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        return None
    try:
        return int(parquet.read_metadata(path).num_rows)
    except (OSError, ValueError):
        return None
