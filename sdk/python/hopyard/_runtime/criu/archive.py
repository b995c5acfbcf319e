"""A process snapshot as one file: a zstd-compressed tar of metadata (the manifest), CRIU's images and the working folder.

`pack` and `unpack` process the data in one pass and compute the hash at the same time. Unpacked data is not used before the
hash of the whole file is verified. Packing runs in parallel, because the slot stays occupied until packing ends: several threads
compress blocks, each as a separate zstd frame, while further blocks are read and finished ones are hashed and written.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, Final

import zstandard

from hopyard._common.private_files import FOLDER_MODE, private_opener
from hopyard._runtime.snapshot_file import SnapshotCorruptError, SnapshotFileInfo, SnapshotRefusedError

_MANIFEST: Final = "manifest.json"
_IMAGES: Final = "images"
_FOLDER: Final = "folder"
_LEVEL: Final = 1
_BLOCK: Final = 1024 * 1024
_FRAME: Final = 1024 * 1024
"""Bytes per compressed frame: larger frames compress little better and do not fit into a CPU's cache."""
_LARGEST_MANIFEST: Final = 16 * 1024 * 1024


class _Verifying:
    """A readable file that computes the SHA-256 and the number of the bytes read from it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.size = 0

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._hash.update(data)
        self.size += len(data)
        return data

    def sha256(self) -> str:
        return self._hash.hexdigest()


class _Packing:
    """A writable stream that compresses data in other threads, writes it to a file and computes the hash of the compressed bytes.

    Args:
        file: The file, open and empty.
        threads: Number of threads that compress.
    """

    def __init__(self, file: BinaryIO, threads: int) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._written = self._taken = 0
        self._small = bytearray()
        self._compressors = ThreadPoolExecutor(threads, "compressing")
        self._writer = ThreadPoolExecutor(1, "writing")
        self._most = 2 * threads + 1
        self._waiting: deque[Future[None]] = deque()

    def write(self, data: bytes) -> int:
        """Queue data for compression, and return its length. Waits while the queue is full.

        Raises:
            OSError: Earlier data could not be written.
        """
        self._taken += len(data)
        if len(data) < _FRAME:
            self._small += data
            if len(self._small) >= _FRAME:
                self._flush()
        else:
            self._flush()
            self._submit(data)
        return len(data)

    def tell(self) -> int:
        return self._taken

    def finish(self) -> SnapshotFileInfo:
        """Wait until all data is written, and return the hash and the size of the file.

        Raises:
            OSError: Data could not be written.
        """
        self._flush()
        while self._waiting:
            self._waiting.popleft().result()
        return SnapshotFileInfo(self._hash.hexdigest(), self._written)

    def close(self) -> None:
        """Cancel queued work and wait until the threads have ended; the file is incomplete unless `finish` returned before."""
        for pool in (self._compressors, self._writer):
            pool.shutdown(cancel_futures=True)

    def _flush(self) -> None:
        if self._small:
            self._submit(bytes(self._small))
            self._small.clear()

    def _submit(self, data: bytes) -> None:
        frame = self._compressors.submit(_compressed, data)
        self._waiting.append(self._writer.submit(self._put, frame))
        while len(self._waiting) > self._most:
            self._waiting.popleft().result()

    def _put(self, frame: Future[bytes]) -> None:
        data = frame.result()
        self._hash.update(data)
        self._file.write(data)
        self._written += len(data)


def _compressed(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=_LEVEL).compress(data)


def pack(
    file: Path,
    manifest: Mapping[str, Any],
    images: Path | None,
    folder: Path,
    *,
    instead: Mapping[str, bytes],
    threads: int = 1,
) -> SnapshotFileInfo:
    """Write a process snapshot to `file`, and return its hash and size. If this fails, `file` is deleted.

    Args:
        file: Path of the snapshot; an existing file is overwritten.
        manifest: Metadata, which is stored as JSON.
        images: Folder of CRIU's images; None: the snapshot contains no process, because the program has ended.
        folder: Working folder of the process.
        instead: File names at the top of `folder` with the contents to store in place of these files.
        threads: Number of threads that compress.

    Raises:
        OSError: Reading or writing failed.
    """
    try:
        with open(file, "wb", opener=private_opener) as opened:
            out = _Packing(opened, threads)
            try:
                # tarfile uses only write() and tell() of a file.
                with tarfile.TarFile(fileobj=out, mode="w", copybufsize=_FRAME) as tar:  # type: ignore[arg-type]
                    _add(tar, _MANIFEST, json.dumps(manifest).encode())
                    if images is not None:
                        tar.add(images, _IMAGES)
                    tar.add(folder, _FOLDER, filter=_without({f"{_FOLDER}/{name}" for name in instead}))
                    for name, data in instead.items():
                        _add(tar, f"{_FOLDER}/{name}", data)
                return out.finish()
            finally:
                out.close()
    except BaseException:
        file.unlink(missing_ok=True)
        raise


def unpack(file: Path, sha256: str, images: Path, folder: Path) -> dict[str, Any]:
    """Unpack a process snapshot and return its manifest. If this fails, `images` and `folder` are deleted.

    Args:
        file: The snapshot file.
        sha256: Expected hash of the file.
        images: Target for CRIU's images; must not exist.
        folder: Target for the working folder of the process; must not exist.

    Raises:
        SnapshotCorruptError: The bytes do not match the hash.
        SnapshotRefusedError: The bytes match the hash but are not a process snapshot.
        OSError: Writing failed.
    """
    with file.open("rb") as opened:
        source = _Verifying(opened)
        try:
            try:
                manifest = _extract(source, {_IMAGES: images, _FOLDER: folder})
            finally:
                while source.read(_BLOCK):
                    pass
        except (tarfile.TarError, zstandard.ZstdError, EOFError, ValueError, KeyError) as error:
            _discard(images, folder)
            if source.sha256() == sha256:
                raise SnapshotRefusedError(f"{file} is no snapshot of a process: {error}") from error
            raise SnapshotCorruptError(f"{file} is damaged: {error}") from error
        except BaseException:
            _discard(images, folder)
            raise
    if source.sha256() != sha256:
        _discard(images, folder)
        raise SnapshotCorruptError(f"{file} ({source.size} bytes) has the hash {source.sha256()}; expected {sha256}")
    return manifest


def _extract(source: _Verifying, places: Mapping[str, Path]) -> dict[str, Any]:
    manifest: dict[str, Any] = {}
    with (
        zstandard.ZstdDecompressor().stream_reader(source, closefd=False, read_across_frames=True) as plain,  # type: ignore[arg-type]
        tarfile.open(fileobj=plain, mode="r|", bufsize=_BLOCK, copybufsize=_BLOCK) as tar,  # type: ignore[call-overload]
    ):
        # Names are checked below. Links are not, because a program may link to files outside its folder.
        tar.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
        for member in tar:
            if member.name == _MANIFEST and 0 < member.size <= _LARGEST_MANIFEST:
                content = tar.extractfile(member)
                manifest = json.loads(content.read()) if content is not None else {}
                continue
            top, _, below = member.name.partition("/")
            if top not in places or ".." in below.split("/"):
                raise ValueError(f"it holds {member.name!r}")
            place = places[top]
            member.name = below or "."
            if not below:
                place.mkdir(FOLDER_MODE, parents=True)
                # CRIU verifies the mode of the working directory of each process.
                place.chmod(member.mode)
                continue
            tar.extract(member, place, numeric_owner=True)
    if not manifest:
        raise ValueError("it has no manifest")
    return manifest


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o644
    tar.addfile(member, io.BytesIO(data))


def _without(names: set[str]) -> Callable[[tarfile.TarInfo], tarfile.TarInfo | None]:
    """Return a tar filter that excludes the members with these names, and sockets and devices, which cannot be unpacked."""

    def chosen(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if member.name in names or (member.isdev() and not member.isfifo()) else member

    return chosen


def _discard(*folders: Path) -> None:
    for folder in folders:
        if os.path.lexists(folder):
            shutil.rmtree(folder, ignore_errors=True)


__all__ = ["pack", "unpack"]
