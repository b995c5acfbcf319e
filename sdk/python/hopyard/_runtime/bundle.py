"""Code bundles: the source files of an experiment as one compressed archive, identified by the SHA-256 of its bytes.

`pack` is deterministic: equal files give equal bytes with the same release of zstandard, independent of host, time and
owner. A `.hopyardignore` in the folder excludes files, with the syntax of `.gitignore`: one pattern per line, `#`
comments, `*`, `?`, `[...]` and `**`. A `/` inside a pattern anchors it to the folder, a trailing one limits it to
folders, and `!` includes files again; the last matching pattern decides. Before these patterns, `pack` excludes
`DEFAULT_IGNORES`. It also excludes data directories of clusters and services, folders of backups and of tokens, and pictures
drawn by Hopyard.

`unpack` verifies the hash before it parses the archive, and creates only regular files and folders inside its target.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final

import zstandard

from hopyard._common.bounded_yaml import top_level_keys
from hopyard._common.cluster_folders import BACKUPS, TOKENS, recognize
from hopyard._common.private_files import FOLDER_MODE
from hopyard._runtime.untrusted.tar_members import DamagedArchive, RefusedArchive, members
from hopyard._runtime.untrusted.zstd_frames import FREE_BYTES, MAX_RATIO, DecompressedStream

IGNORE_FILE: Final = ".hopyardignore"

DEFAULT_IGNORES: Final = (
    ".git/",
    ".hg/",
    ".svn/",
    "__pycache__/",
    "*.pyc",
    "*.pyo",
    ".venv/",
    "venv/",
    "node_modules/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
    ".ipynb_checkpoints/",
    ".tox/",
    ".nox/",
    ".idea/",
    ".vscode/",
    "*.egg-info/",
    ".DS_Store",
    "hopyard-data/",
)

DRAWN_MARK: Final = "drawn by Hopyard"
"""Text near the beginning of each picture that Hopyard draws; such files are not packed, so that they do not change the bundle."""

_PICTURES: Final = (".svg", ".png")
_MARKED_BYTES: Final = 4096

DEFAULT_LIMIT_BYTES: Final = 100 * 1024 * 1024
_MOST_FILES: Final = 20_000
_MOST_UNPACKED_BYTES: Final = 256 * 1024 * 1024
_MOST_YAML_BYTES: Final = 4 * 1024 * 1024
"""Bytes of YAML files in a bundle that are searched for experiment files, because parsing is slow; later YAML files count as code."""

_NAMED_FILES: Final = 5
_LONGEST_EXPERIMENT: Final = 256 * 1024
_LEVEL: Final = 6


class BundleError(Exception):
    """Raised if a folder cannot be packed or a file cannot be unpacked; the message says what was found and what is allowed."""


class BundleTooLarge(BundleError):
    """Raised if the folder to pack has too many files or bytes; if it has too many bytes, the message names the largest files."""


class BundleCorrupt(BundleError):
    """Raised if the bytes of a bundle do not match the expected hash or are not an archive; the caller should fetch another copy."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A packed folder, as `pack` returns it.

    Attributes:
        sha256: Hash of `data`, 64 lower-case hexadecimal digits.
        data: The packed bytes.
        files: Paths of the packed files relative to the folder, with "/" as separator, sorted.
    """

    sha256: str
    data: bytes
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BundleFile:
    """A file of a bundle.

    Attributes:
        sha256: Hash of its content.
        size: Size of its content in bytes.
        executable: Whether it is executable.
    """

    sha256: str
    size: int
    executable: bool


def pack(
    folder: Path | None,
    *,
    extra: Mapping[str, bytes] | None = None,
    without: Collection[str] = (),
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> Bundle:
    """Pack the files in a folder and its subfolders, except ignored ones (see the docstring of this module), and further files.

    Symbolic links to files inside the folder are packed as copies of these files.

    Args:
        folder: Folder with the experiment's code; None: only `extra` is packed.
        extra: Contents of files by path. A file of the folder with the same path is not packed.
        without: Paths of further files of the folder that are not packed.
        limit_bytes: Maximum total size of the files before compression.

    Raises:
        BundleTooLarge: The files are too large or too many.
        BundleError: The path is not a folder, or the folder contains something that cannot be packed, such as a device or a
            link to a path outside the folder.
    """
    further = extra or {}
    files: list[str] = []
    if folder is not None:
        if not folder.is_dir():
            raise BundleError(f"{folder} is not a folder")
        files = [name for name in _files(folder, _rules(folder)) if name not in further and name not in without]
        _check_size(folder, files, limit_bytes)
    _check_extra_size(further, limit_bytes)
    raw = io.BytesIO()
    with tarfile.TarFile(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted([*files, *further]):
            file = None if folder is None or name in further else folder / name
            content = further[name] if file is None else file.read_bytes()
            member = tarfile.TarInfo(name)  # Defaults: no owner, time 0.
            member.size = len(content)
            member.mode = 0o755 if file is not None and os.access(file, os.X_OK) else 0o644
            tar.addfile(member, io.BytesIO(content))
    # One thread, a fixed level and the size in the header make the compressed bytes deterministic.
    data = zstandard.ZstdCompressor(level=_LEVEL, threads=0, write_content_size=True).compress(raw.getvalue())
    if raw.tell() > max(FREE_BYTES, MAX_RATIO * len(data)):
        raise BundleTooLarge(
            f"the {_megabytes(raw.tell())} of files to send compress to {_megabytes(len(data))}, allowed is a factor of {MAX_RATIO}: "
            f"they are data rather than code. Leave them out by {IGNORE_FILE}"
        )
    return Bundle(hashlib.sha256(data).hexdigest(), data, tuple(sorted([*files, *further])))


def packed_sizes(folder: Path, most: int = _MOST_FILES) -> dict[str, int]:
    """Return the sizes in bytes of the files that `pack` packs, by their paths relative to the folder.

    Args:
        folder: The folder that is packed.
        most: Maximum number of files to look at; further ones are omitted.

    Raises:
        BundleError: The path is not a folder, or the folder contains something that cannot be packed.
        OSError: The folder cannot be read.
    """
    if not folder.is_dir():
        raise BundleError(f"{folder} is not a folder")
    return {name: (folder / name).stat().st_size for name in islice(_files(folder, _rules(folder)), most)}


def why_left_out(folder: Path, path: str) -> str:
    """Return why `pack` leaves out a file or folder, such as ".hopyardignore line 3 (data/) excludes it".

    Args:
        folder: The folder that is packed.
        path: A path relative to the folder, or an absolute one.

    Returns:
        The reason; empty: the path is packed, or does not exist.
    """
    name = os.path.relpath(folder / path, folder)
    if not (folder / name).exists() or name == ".":
        return ""
    if name.split(os.sep)[0] == "..":
        return f"it is outside of {folder}"
    rules = _rules(folder)
    parts = name.split(os.sep)
    for count in range(1, len(parts) + 1):
        above = folder.joinpath(*parts[:count])
        if (rule := _ignored_by(rules, "/".join(parts[:count]), above.is_dir())) is not None:
            return f"{rule.place} excludes it"
        if above.is_dir() and (found := recognize(above)) is not None:
            return f"{above} is {found.what}"
    return ""


def code_hash(data: bytes | BinaryIO) -> str:
    """Return a hash of a bundle's files without experiment files, so that experiments with the same code have the same hash.

    Experiment files are YAML files with the key `space`, and `metric` or `stop`.

    Args:
        data: The packed bytes of the bundle, or a file with them.

    Returns:
        64 hexadecimal digits.

    Raises:
        BundleError: The data is not a bundle or is too large.
    """
    said = (f"{name}\0{found}\n" for name, found in code_files(data).items())
    return hashlib.sha256("".join(said).encode()).hexdigest()


def code_files(data: bytes | BinaryIO) -> dict[str, str]:
    """Return the files that `code_hash` covers, in the order of the bundle.

    Args:
        data: The packed bytes of the bundle, or a file with them.

    Returns:
        For each path in the bundle a text with the file's executable bits and the hash of its contents; the texts of two files are
        equal if and only if both agree.

    Raises:
        BundleError: The data is not a bundle or is too large.
    """
    files: dict[str, str] = {}
    yaml_left = _MOST_YAML_BYTES
    try:
        archive = DecompressedStream(io.BytesIO(data) if isinstance(data, bytes) else data, _MOST_UNPACKED_BYTES)
        for member in members(archive, most=_MOST_FILES, limit=_MOST_UNPACKED_BYTES):
            digest, kept = hashlib.sha256(), b""
            keeps = member.name.endswith((".yaml", ".yml")) and member.size <= min(_LONGEST_EXPERIMENT, yaml_left)
            for piece in member.content.pieces():
                digest.update(piece)
                kept += piece if keeps else b""
            if not (keeps and _is_experiment(kept)):
                files[member.name] = f"{member.executable}\0{digest.hexdigest()}"
            yaml_left -= len(kept)
    except RefusedArchive as error:
        raise BundleError(f"it is no bundle: {error}") from error
    return files


def _is_experiment(content: bytes) -> bool:
    keys = top_level_keys(content)
    return "space" in keys and ("metric" in keys or "stop" in keys)


def unpack(file: Path, folder: Path, sha256: str) -> None:
    """Verify a bundle and unpack it atomically into a new folder, with read-only files.

    Args:
        file: Path of the bundle.
        folder: Target, which must not exist; its parent must.
        sha256: Expected hash of the file's bytes.

    Raises:
        BundleCorrupt: The file is missing or unreadable, is a link, or its bytes do not match the hash or are not an archive.
        BundleError: A member is not a regular file or would be created outside the folder, or the bundle has more than 20,000
            members or 256 MiB of unpacked data, or is compressed more than 200 times.
        FileExistsError: `folder` exists.
    """
    if os.path.lexists(folder):
        raise FileExistsError(f"{folder} exists; a bundle is unpacked into a folder of its own")
    with _verified(file, sha256) as archive:
        partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".partial"))
        try:
            _extract(archive, partial)
            partial.chmod(FOLDER_MODE)
            os.rename(partial, folder)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def recorded_files(file: Path, sha256: str) -> dict[str, BundleFile]:
    """Verify a bundle and return its files by their paths.

    Args:
        file: Path of the bundle.
        sha256: Expected hash of the file's bytes.

    Raises:
        BundleCorrupt, BundleError: As for `unpack`.
    """
    files: dict[str, BundleFile] = {}
    with _verified(file, sha256) as archive:
        for member in members(archive, most=_MOST_FILES, limit=_MOST_UNPACKED_BYTES):
            digest = hashlib.sha256()
            for piece in member.content.pieces():
                digest.update(piece)
            files[member.name] = BundleFile(digest.hexdigest(), member.size, bool(member.executable))
    return files


def extract(file: Path, sha256: str, names: Collection[str], write: Callable[[str, Iterator[bytes]], None]) -> None:
    """Verify a bundle and pass some of its files to a function.

    Args:
        file: Path of the bundle.
        sha256: Expected hash of the file's bytes.
        names: Paths of the files in the bundle.
        write: Called with the path and the content of each of them.

    Raises:
        BundleCorrupt, BundleError: As for `unpack`.
    """
    with _verified(file, sha256) as archive:
        for member in members(archive, most=_MOST_FILES, limit=_MOST_UNPACKED_BYTES):
            if member.name in names:
                write(member.name, member.content.pieces())


def file_mode(executable: bool) -> int:
    """Return the mode of an unpacked file: read-only, because all runs of a node share it. A write then fails."""
    return 0o500 if executable else 0o400


@contextmanager
def _verified(file: Path, sha256: str) -> Iterator[DecompressedStream]:
    """Return a context with the decompressed archive of a bundle whose hash was verified.

    Raises:
        BundleCorrupt, BundleError: As for `unpack`; also from the statements in the context that read the archive.
    """
    with _opened(file) as opened:
        try:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
        except OSError as error:
            raise BundleCorrupt(f"{file} cannot be read: {error.strerror or error}") from error
        if found != sha256:
            raise BundleCorrupt(f"{file} ({opened.tell()} bytes) has the hash {found}; expected {sha256}")
        opened.seek(0)
        try:
            yield DecompressedStream(opened, _MOST_UNPACKED_BYTES)
        except DamagedArchive as error:
            raise BundleCorrupt(f"{file} is no code bundle: {error}") from error
        except RefusedArchive as error:
            raise BundleError(f"{file} is no code bundle: {error}") from error


def _opened(file: Path) -> BufferedReader:
    """Open a bundle for reading, without following a link or waiting for a pipe.

    Raises:
        BundleCorrupt: It is missing, is no regular file, or cannot be opened.
    """
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        raise BundleCorrupt(f"{file} cannot be opened: {error.strerror or error}") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise BundleCorrupt(f"{file} is not a regular file")
    return os.fdopen(handle, "rb")


@dataclass(frozen=True, slots=True)
class _Rule:
    """One pattern line of an ignore file.

    Attributes:
        pattern: Matches the paths, relative to the packed folder, that the line names.
        folders_only: Whether the line matches only folders (it ends with "/").
        takes_back: Whether the line includes matching paths again (it begins with "!").
        place: Where the line stands, with its text, for messages.
    """

    pattern: re.Pattern[str]
    folders_only: bool
    takes_back: bool
    place: str

    @classmethod
    def of(cls, line: str, place: str) -> _Rule | None:
        text = line.rstrip("\n").strip()
        if not text or text.startswith("#"):
            return None
        takes_back = text.startswith("!")
        text = text.removeprefix("!").removeprefix("\\")
        folders_only = text.endswith("/")
        text = text.rstrip("/")
        tied = "/" in text
        expression = _expression(text.lstrip("/"))
        return cls(
            re.compile(expression if tied else f"(?:.*/)?{expression}", re.DOTALL), folders_only, takes_back, place
        )

    def matches(self, name: str, is_folder: bool) -> bool:
        return (is_folder or not self.folders_only) and self.pattern.fullmatch(name) is not None


def _expression(text: str) -> str:
    """Return the regular expression for the ignore pattern `text`.

    `*` and `?` match within one path component, `**` across components.
    """
    parts: list[str] = []
    index = 0
    while index < len(text):
        if text.startswith("**/", index):
            parts.append("(?:.*/)?")
            index += 3
        elif text.startswith("**", index):
            parts.append(".*")
            index += 2
        elif text[index] == "*":
            parts.append("[^/]*")
            index += 1
        elif text[index] == "?":
            parts.append("[^/]")
            index += 1
        elif text[index] == "[" and (end := text.find("]", index + 2)) > 0:
            inside = text[index + 1 : end].replace("\\", "\\\\")
            parts.append("[^" + inside[1:] + "]" if inside[0] in "!^" else f"[{inside}]")
            index = end + 1
        else:
            parts.append(re.escape(text[index]))
            index += 1
    return "".join(parts)


def _rules(folder: Path) -> list[_Rule]:
    lines = [(line, f"the default pattern {line}") for line in DEFAULT_IGNORES]
    file = folder / IGNORE_FILE
    if file.is_file():
        text = file.read_text(encoding="utf-8")
        lines += [
            (line, f"{IGNORE_FILE} line {number} ({line.strip()})") for number, line in enumerate(text.splitlines(), 1)
        ]
    rules: list[_Rule] = []
    for line, place in lines:
        try:
            rule = _Rule.of(line, place)
        except re.error as error:
            raise BundleError(f"{file}: {line!r} is no pattern: {error}") from error
        if rule is not None:
            rules.append(rule)
    return rules


def _ignored_by(rules: Sequence[_Rule], name: str, is_folder: bool) -> _Rule | None:
    """Return the rule that excludes a path; None: it is not excluded."""
    last = next((rule for rule in reversed(rules) if rule.matches(name, is_folder)), None)
    return None if last is None or last.takes_back else last


def _files(folder: Path, rules: Sequence[_Rule], prefix: str = "") -> Iterator[str]:
    root = folder.resolve()
    with os.scandir(folder / prefix) as scan:
        entries = list(scan)
    found = recognize(folder / prefix, [entry.name for entry in entries])
    if found is not None:
        if prefix:
            return
        raise BundleError(
            f"{folder} holds {found.mark}, so it is {found.what}; allowed: a folder of code, inside of which data directories of "
            "clusters, backups and tokens are left out"
        )
    for entry in entries:
        name = prefix + entry.name
        if _ignored_by(rules, name, entry.is_dir()) is not None:
            continue
        if entry.is_symlink():
            _check_link(entry, folder, root)
        if entry.is_dir(follow_symlinks=False):
            yield from _files(folder, rules, name + "/")
        elif entry.is_file():
            if not _is_drawn(entry):
                yield name
        else:
            raise BundleError(f"{entry.path} is neither a file nor a folder; list it in {IGNORE_FILE}")


def _check_link(entry: os.DirEntry[str], folder: Path, root: Path) -> None:
    """Refuse a link that leads out of the folder, or to a file with tokens of a cluster.

    Raises:
        BundleError: The link is refused.
    """
    target = Path(entry.path).resolve()
    if not target.is_relative_to(root):
        raise BundleError(
            f"{entry.path} links to {os.readlink(entry.path)}, outside of {folder}; list it in {IGNORE_FILE}"
        )
    for above in target.parents[: len(target.parts) - len(root.parts) - 1]:
        found = recognize(above) if above.is_dir() else None
        if found is not None and found.what in (TOKENS, BACKUPS):
            raise BundleError(
                f"{entry.path} links to {os.readlink(entry.path)}, and {above} is {found.what}; list it in {IGNORE_FILE}"
            )


def _is_drawn(entry: os.DirEntry[str]) -> bool:
    """Return whether a file is a picture that Hopyard drew: an SVG or PNG file with `DRAWN_MARK` near its beginning."""
    if not entry.name.lower().endswith(_PICTURES):
        return False
    with open(entry.path, "rb") as opened:
        return DRAWN_MARK.encode() in opened.read(_MARKED_BYTES)


def _check_size(folder: Path, files: Sequence[str], limit_bytes: int) -> None:
    if len(files) > _MOST_FILES:
        raise BundleTooLarge(
            f"{folder} holds {len(files)} files; allowed: {_MOST_FILES}; leave some out by {IGNORE_FILE}"
        )
    sizes = {name: (folder / name).stat().st_size for name in files}
    total = sum(sizes.values())
    if total > limit_bytes:
        biggest = sorted(sizes, key=lambda name: (-sizes[name], name))[:_NAMED_FILES]
        listed = ", ".join(f"{name} ({_megabytes(sizes[name])})" for name in biggest)
        raise BundleTooLarge(
            f"the code in {folder} has {_megabytes(total)}; allowed: {_megabytes(limit_bytes)}. "
            f"The biggest files: {listed}. Leave data and results out by {IGNORE_FILE}"
        )


def _check_extra_size(extra: Mapping[str, bytes], limit_bytes: int) -> None:
    total = sum(map(len, extra.values()))
    if total > limit_bytes:
        biggest = max(extra, key=lambda name: len(extra[name]))
        raise BundleTooLarge(
            f"the files to send have {_megabytes(total)}; allowed: {_megabytes(limit_bytes)}. The biggest file: {biggest} "
            f"({_megabytes(len(extra[biggest]))}); move data out of the imported packages, and name them by an absolute path"
        )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def _extract(archive: DecompressedStream, target: Path) -> None:
    for member in members(archive, most=_MOST_FILES, limit=_MOST_UNPACKED_BYTES):
        path = target.joinpath(*member.name.split("/"))
        try:
            make_folders(path.parent, target)
            # Mode "x" neither follows a link nor replaces a file that an earlier member created.
            with path.open("xb") as out:
                out.writelines(member.content.pieces())
        except (FileExistsError, NotADirectoryError) as error:
            raise BundleError(f"member {member.name!r} conflicts with an earlier member") from error
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            raise BundleError(f"member {member.name!r:.200} has a name that is too long for this host") from error
        path.chmod(file_mode(bool(member.executable)))


def make_folders(folder: Path, top: Path) -> None:
    """Create a folder below `top` and the folders in which it is, private ones; existing folders are kept."""
    if folder != top and not folder.is_dir():
        make_folders(folder.parent, top)
        folder.mkdir(FOLDER_MODE)
