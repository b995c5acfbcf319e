"""Traces in files: JSON Lines, a job a line, plain or compressed by gzip."""

from __future__ import annotations

import gzip
import json
import math
import os
import tempfile
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from hopyard.errors import AlreadyExists, InvalidInput, NotFound, os_error_text
from hopyard.results.files import whole
from hopyard.traces.trace import Trace

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""A longer line is refused: it would be millions of reports."""

_GZIP: Final = b"\x1f\x8b"
_FIELDS: Final = tuple(field.name for field in fields(Trace))
_OPTIONAL: Final = ("positions", "others")


def read_traces(*paths: str | Path) -> list[Trace]:
    """Read files of traces, in order; those whose name ends in `.gz` are unpacked.

    Args:
        paths: One or more files. They are read as if they were one.

    Raises:
        InvalidInput: A file has no traces, or a line is not as `Trace` says, has a job that stands in a line before, or
            another metric or mode than the lines before; the message begins with the file and the line.
        NotFound: A file is not there.
        OSError: A file cannot be read.
    """
    if not paths:
        raise InvalidInput("no file of traces is named")
    together = _Together()
    found: list[Trace] = []
    for path in map(Path, paths):
        before = len(found)
        for place, trace in _read(path):
            together.add(place, trace)
            found.append(trace)
        if len(found) == before:
            raise InvalidInput(f"{path}: it is empty; a file of traces has a job a line")
    return found


def write_traces(path: str | Path, traces: Iterable[Trace]) -> int:
    """Write a file of traces, whole or not at all; one that is there is replaced.

    If the name ends in `.gz`, the file is compressed. Equal traces give equal bytes.

    Args:
        path: The file.
        traces: At least one.

    Returns:
        How many were written.

    Raises:
        InvalidInput: There are none, or they could not be read again: a job stands twice, or metric or mode differ.
        OSError: The file cannot be written.
    """
    together = _Together()
    count = 0
    target = Path(os.path.realpath(path))
    with whole(target) as partial, partial.open("xb") as raw, _packed(target, raw) as out:
        for count, trace in enumerate(traces, 1):
            together.add(f"trace {count}", trace)
            out.write(to_line(trace).encode())
        if not count:
            raise InvalidInput(f"{path}: there are no traces to write")
    return count


def to_line(trace: Trace) -> str:
    """A trace as a line of a file, its line break included."""
    return json.dumps(document(trace), allow_nan=False) + "\n"


def document(trace: Trace) -> dict[str, Any]:
    """A trace as plain JSON values, as it stands in a line of a file."""
    made: dict[str, Any] = {
        "job": trace.job,
        "hyperparameters": dict(trace.hyperparameters),
        "metric": trace.metric,
        "mode": trace.mode,
        "metrics": _nulls(trace.metrics),
        "seconds": list(trace.seconds),
    }
    if not isinstance(trace.positions, range):
        made["positions"] = list(trace.positions)
    if trace.others:
        made["others"] = {name: _nulls(values) for name, values in trace.others.items()}
    return made


def _nulls(values: Sequence[float]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values]


def need_writable(path: Path) -> None:
    """Make sure that traces can be written to a file, before the work that makes them; its folder is made if it is missing.

    Raises:
        AlreadyExists: Something else than traces is there, which is not to be lost to a slip of the pen.
        InvalidInput: The file cannot be made.
    """
    try:
        if path.exists():
            if not path.is_file():
                raise AlreadyExists(
                    f"{path}: it is no ordinary file, so no traces are written there; choose another name"
                )
            if path.stat().st_size and not _begins_as_traces(path):
                raise AlreadyExists(
                    f"{path}: it is there already and holds no traces; choose another name, or remove it"
                )
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}."):
            pass
    except OSError as error:
        raise InvalidInput(f"traces cannot be written to {path}: {os_error_text(error)}") from error


def _begins_as_traces(path: Path) -> bool:
    try:
        with closing(_read(path)) as traces:
            return next(traces, None) is not None
    except InvalidInput:
        return False


class _Together:
    """What must be true of traces beside each other."""

    def __init__(self) -> None:
        self._jobs: dict[str, str] = {}
        self._first: tuple[str, Trace] | None = None

    def add(self, place: str, trace: Trace) -> None:
        """Take one more.

        Raises:
            InvalidInput: It does not go with those before.
        """
        where, first = self._first = self._first or (place, trace)
        for name in ("metric", "mode"):
            ours, theirs = getattr(trace, name), getattr(first, name)
            if ours != theirs:
                raise InvalidInput(
                    f'{place}: "{name}" is "{ours}", but "{theirs}" at {where}; traces that go together agree'
                )
        if (other := self._jobs.setdefault(trace.job, place)) is not place:
            raise InvalidInput(f'{place}: job "{trace.job}" stands at {other} already; each job has one line')


def _read(path: Path) -> Generator[tuple[str, Trace]]:
    """Traces and their places, line by line."""
    with _opened(path) as lines:
        number = 0
        while raw := _line(path, lines, number := number + 1):
            place = f"{path}:{number}"
            try:
                yield place, _decoded(raw)
            except InvalidInput as error:
                raise InvalidInput(f"{place}: {error}") from error


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    if path.is_dir():
        raise InvalidInput(f"{path}: it is a folder, not a file of traces")
    try:
        with path.open("rb") as raw:
            if path.suffix != ".gz":
                yield raw
            else:
                with gzip.GzipFile(fileobj=raw, mode="rb") as unpacked:
                    yield cast("BinaryIO", unpacked)
    except FileNotFoundError:
        raise NotFound(f"{path}: there is no such file") from None


def _line(path: Path, lines: BinaryIO, number: int) -> bytes:
    try:
        raw = lines.readline(MAX_LINE_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        where = "" if number == 1 else f", after {number - 1} whole lines"
        raise InvalidInput(f"{path}: it is not what gzip wrote, or only a part of it{where}: {error}") from error
    if len(raw) > MAX_LINE_BYTES:
        raise InvalidInput(f"{path}:{number}: the line is longer than the {MAX_LINE_BYTES} bytes that are allowed")
    return raw


def _decoded(raw: bytes) -> Trace:
    """A line as a trace.

    Raises:
        InvalidInput: It is none; the message has no place.
    """
    if not raw.strip():
        raise InvalidInput("an empty line; each line is a job")
    try:
        found = json.loads(raw.decode(), parse_constant=_no_constant, object_pairs_hook=_no_twins)
    except UnicodeDecodeError as error:
        hint = "; it is gzip, so its name must end in .gz" if raw.startswith(_GZIP) else ""
        raise InvalidInput(f"it is not UTF-8 ({error.reason} at byte {error.start}){hint}") from error
    except InvalidInput:
        raise
    except (ValueError, RecursionError) as error:
        cut = "" if raw.endswith(b"\n") else "; the file ends within the line: it is truncated"
        raise InvalidInput(f"it is no JSON: {error}{cut}") from error
    if not isinstance(found, dict):
        raise InvalidInput(f"found {found!r:.80}, allowed is an object with {_listed(_FIELDS[:6])}")
    if unknown := [name for name in found if name not in _FIELDS]:
        raise InvalidInput(f"unknown field {_listed(unknown)}; allowed are {_listed(_FIELDS)}")
    if missing := [name for name in _FIELDS if name not in found and name not in _OPTIONAL]:
        raise InvalidInput(f"{_listed(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    if "positions" in found and found["positions"] == []:
        raise InvalidInput('"positions": found none; left out, they are 1, 2, 3, ...')
    trace = Trace(**found)
    for values in (found["metrics"], *found.get("others", {}).values()):
        if math.inf in values or -math.inf in values:
            raise InvalidInput("found a metric beyond the largest double; what is not finite is null")
    return trace


def _no_constant(name: str) -> None:
    raise InvalidInput(f"{name} is no JSON; what is not finite is null")


def _no_twins(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twin = next(name for name in names if names.count(name) > 1)
        raise InvalidInput(f'"{twin}" stands twice in one object')
    return made


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name:.80}"' for name in names)


@contextmanager
def _packed(target: Path, raw: BinaryIO) -> Iterator[BinaryIO]:
    """What is written to it goes to `raw`, compressed if the file is to be; neither name nor time of it is kept within."""
    if target.suffix != ".gz":
        yield raw
        return
    with gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        yield cast("BinaryIO", packed)
