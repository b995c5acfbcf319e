"""Reads and writes trace files: JSON Lines with one trace (a job's learning curve with training times) per line, plain or gzip."""

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
"""Maximum length of a line in bytes. A longer one would have millions of reports and is rejected."""

_GZIP: Final = b"\x1f\x8b"
_FIELDS: Final = tuple(field.name for field in fields(Trace))
_OPTIONAL: Final = ("positions", "others")


def read_traces(*paths: str | Path) -> list[Trace]:
    """Read trace files, in order. Files whose name ends in `.gz` are decompressed.

    Args:
        paths: One or more files. They are treated as one file.

    Raises:
        InvalidInput: A file has no traces; or a line is not a valid `Trace`, has the job of an earlier line, or has another
            metric or mode than the earlier lines. The message begins with the file and the line number.
        NotFound: A file does not exist.
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
    """Write a trace file. It is written completely or not at all. An existing file is replaced.

    If the name ends in `.gz`, the file is compressed. Equal traces produce equal bytes.

    Args:
        path: The file.
        traces: At least one trace.

    Returns:
        Number of traces written.

    Raises:
        InvalidInput: There are no traces, a job occurs twice, or traces differ in metric or mode.
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
    """Return a trace as a line of a trace file, including the line break."""
    return json.dumps(document(trace), allow_nan=False) + "\n"


def document(trace: Trace) -> dict[str, Any]:
    """Return a trace as a JSON object, which is the content of a line of a trace file."""
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
    """Check that a trace file can be written at `path`, before any work is spent on the traces. Missing folders are created.

    Raises:
        AlreadyExists: The path exists and is not a trace file, so it must not be replaced.
        InvalidInput: The file cannot be created.
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
    """Checks that traces can be used together: each job occurs once, and all traces have the same metric and mode."""

    def __init__(self) -> None:
        self._jobs: dict[str, str] = {}
        self._first: tuple[str, Trace] | None = None

    def add(self, place: str, trace: Trace) -> None:
        """Add a trace, after checking it against the traces that were added before.

        Args:
            place: Location of the trace for error messages, such as "FILE:LINE".
            trace: The trace.

        Raises:
            InvalidInput: The job was added before, or the metric or the mode differs.
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
    """Yield the traces in a file, each with its place "FILE:LINE" for error messages. Raises InvalidInput for an invalid line."""
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
    """Parse a line of a trace file.

    Raises:
        InvalidInput: The line is not a trace. The caller adds the file and the line number to the message.
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
    """Return a context manager that yields a stream which writes to `raw`, compressed if the name of `target` ends in `.gz`.

    The compressed data contain neither a file name nor a time, so that equal traces produce equal bytes.
    """
    if target.suffix != ".gz":
        yield raw
        return
    with gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        yield cast("BinaryIO", packed)
