"""Checks the files of a SQLite database before it is opened, so that damage is refused in one sentence and nothing is changed.

SQLite itself opens some damaged databases without an error: it ignores a write-ahead log (WAL, the file `-wal`) that it cannot read,
and notices lost pages only when a query needs them.
"""

from __future__ import annotations

import stat
import struct
from pathlib import Path
from typing import Final

from hopyard.errors import Conflict, DataLoss
from hopyard_appstat.blobs.cluster_id import STORE, check_file

DATABASE: Final = "appstat.sqlite"
"""Name of the file of the database in a data directory."""

HEADER_BYTES: Final = 100
"""Size of the header of a SQLite database."""

_MAGIC: Final = b"SQLite format 3\0"
_WAL_MAGIC: Final = (0x377F0682, 0x377F0683)
_WAL_HEADER: Final = struct.Struct(">8I")
_FRAME_HEADER: Final = struct.Struct(">6I")
_MOST_LOOKS: Final = 10

REMEDY: Final = (
    "move the data directory away and restore a backup (`hopyard restore BACKUPS`), or name another data directory with --data to "
    "begin anew"
)


def check_files(file: Path) -> None:
    """Raise an error if the file of a database, or its write-ahead log, is damaged. A missing or empty database is no error here.

    It reads the header of the database, and the header of each page in the log, but no pages. It waits for no lock and changes nothing.

    Args:
        file: The file of the database, or a link to it. The log is beside the file, not beside the link.

    Raises:
        DataLoss: The file is a folder or a device, is too short, or does not begin as a database does; or its write-ahead log was
            removed, or is not that of a database with such pages. The message says what was found.
        Conflict: The file is a link to a file that does not exist.
    """
    before: object = None
    for _ in range(_MOST_LOOKS):
        try:
            _check(file)
            return
        except FileNotFoundError:
            continue  # Another process has just closed the database, and SQLite has deleted the log.
        except DataLoss:
            # Another process may write: only the same finding in the same files counts.
            found = [_times(file), _times(log_of(file))]
            if found == before:
                raise
            before = found
    _check(file)


def check_data(data: Path, *, adopt: bool = False, journal: bool = False) -> None:
    """Raise an error if the database in the data directory of a cluster is lost or damaged, before the cluster starts.

    It is the plugin `database` of the entry-point group `hopyard.readers`.

    Args:
        data: The data directory.
        adopt: Whether a store of another cluster belongs to the cluster of this database from now on.
        journal: Whether to read the journal of the cluster itself, too, with which a scheduler begins.

    Raises:
        DataLoss, Conflict: See `check_files` and `check_file`.
        DataLoss: The journal of the cluster itself is damaged. The message names the position.
    """
    file = data / DATABASE
    check_files(file)
    if not adopt:
        check_file(file, data / STORE)
    if journal:
        from hopyard_appstat.database.read_only import check_cluster_stream  # It imports the library of the database.

        check_cluster_stream(data)


def has_log(file: Path) -> bool:
    """Return whether a database has a write-ahead log with contents: its last process did not close it, or one has opened it now."""
    found = _times(log_of(file))
    return found is not None and found[0] > 0


def log_of(file: Path) -> Path:
    """Return the path of the write-ahead log of a database. SQLite follows links: it is beside the file to which a link leads."""
    return _beside(file, "-wal")


def _check(file: Path) -> None:
    if file.is_symlink() and not file.exists():
        raise Conflict(
            f"{file}: found a link to {file.readlink()}, which does not exist; restore that file, or {REMEDY}"
        )
    if not file.exists():
        return
    kind = file.stat().st_mode
    if not stat.S_ISREG(kind):
        what = "a folder" if stat.S_ISDIR(kind) else "a device, a pipe or a socket"
        raise DataLoss(f"{file}: found {what}, needed is the file of a database; {REMEDY}")
    size = file.stat().st_size
    if size == 0:
        return
    with file.open("rb") as opened:
        header = opened.read(HEADER_BYTES)
    if not _MAGIC.startswith(header[: len(_MAGIC)]):
        raise DataLoss(f"{file}: found a file that is not a database (it begins with {header[:16]!r}); {REMEDY}")
    if len(header) < HEADER_BYTES:
        raise DataLoss(f"{file}: found {size} bytes, the beginning of a database: the rest is missing; {REMEDY}")
    page = _page_size(header)
    if page < 512 or page & (page - 1):
        raise DataLoss(f"{file}: found a database whose header is damaged (pages of {page} bytes); {REMEDY}")
    logged = _logged_pages(file, page)
    counter, pages, valid_for = (int.from_bytes(header[at : at + 4]) for at in (24, 28, 92))
    there = size // page
    if counter == valid_for and there < pages and not logged.issuperset(range(there + 1, pages + 1)):
        raise DataLoss(
            f"{file}: found {size} bytes of a database of {pages * page} bytes: the rest is missing; {REMEDY}"
        )


def _logged_pages(file: Path, page: int) -> set[int]:
    """Return the numbers of the pages that the write-ahead log of a database contains; empty: it has none.

    Args:
        file: The file of the database.
        page: Size of its pages in bytes.

    Raises:
        DataLoss: The log was removed, or is not one of a database with such pages.
    """
    log, shared = log_of(file), _beside(file, "-shm")
    if not log.exists():
        if shared.exists():
            raise DataLoss(
                f"{log}: the write-ahead log of the database is missing, and with it the last transactions; put it back, or {REMEDY}; "
                f"to accept the loss, remove {shared}"
            )
        return set()
    if not stat.S_ISREG(log.stat().st_mode):
        raise DataLoss(f"{log}: found something else than the write-ahead log of the database; {REMEDY}")
    with log.open("rb") as opened:
        header = opened.read(_WAL_HEADER.size)
        # A power failure may leave a header that was never written. SQLite then uses the database without the log.
        if len(header) < _WAL_HEADER.size or not any(header):
            return set()
        magic, _, found, _, *salts, _, _ = _WAL_HEADER.unpack(header)
        if magic not in _WAL_MAGIC or found != page:
            what = (
                f"pages of {found} bytes, the database has {page}" if magic in _WAL_MAGIC else "not a write-ahead log"
            )
            raise DataLoss(
                f"{log}: found the file of another database or damage ({what}); put the right one back, or {REMEDY}"
            )
        pages: set[int] = set()
        begun: set[int] = set()
        while len(frame := opened.read(_FRAME_HEADER.size)) == _FRAME_HEADER.size:
            number, commits, *of_frame, _, _ = _FRAME_HEADER.unpack(frame)
            if of_frame != salts:
                break
            begun.add(number)
            if commits:
                pages |= begun
            opened.seek(page, 1)
    return pages


def _page_size(header: bytes) -> int:
    size = int.from_bytes(header[16:18])
    return 65536 if size == 1 else size


def _beside(file: Path, ending: str) -> Path:
    return Path(f"{file.resolve()}{ending}")


def _times(file: Path) -> tuple[int, int] | None:
    """Return size and time of the last change of a file; None: it does not exist."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns
