"""Reads results of simulations from files: the output of one or several calls of `hopyard simulate --json`."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np

from hopyard._common.formatting import printable
from hopyard.errors import InvalidInput, NotFound
from hopyard.plots.model import JobCurve, JobEnd, PartitionReplicas, PlottedRun, PlottedVisit, Search, SearchSource
from hopyard.policy.vocabulary import JobState, RunEndReason, RunMode

_ENDS: Final = {
    JobState.COMPLETED.value: JobEnd.COMPLETED,
    JobState.TERMINATED.value: JobEnd.TERMINATED,
    JobState.FAILED.value: JobEnd.FAILED,
    # A simulation has ended, and with it these jobs.
    JobState.SUSPENDED.value: JobEnd.STOPPED,
    JobState.PENDING.value: JobEnd.STOPPED,
    RunEndReason.UNTIL.value: JobEnd.COMPLETED,
}
"""How a job ended, by its state; if a result contains no states, by the reason of its last run's end."""


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file, decompressed if it is a gzip file.

    Raises:
        NotFound: The file does not exist.
        InvalidInput: The path is a folder, or the file is damaged or not UTF-8.
    """
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw).decode()
    except FileNotFoundError:
        raise NotFound(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise InvalidInput(f"{path}: it is a folder; name the files in it") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: it is no text in UTF-8 ({error.reason} at byte {error.start})") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InvalidInput(f"{path}: it is damaged, or only a part of it ({error}); copy it again") from error


def read_results(path: Path) -> list[Search]:
    """Return the searches in a file of results of simulations.

    The file contains one or several JSON objects one after another, or a list of objects, or an object whose field "runs" is such a
    list.

    Raises:
        NotFound: The file does not exist.
        InvalidInput: The file has another format; the message names the place in the file, what is there and what is allowed.
    """
    found = [_search(where, entry) for where, entry in _entries(path, read_text(path))]
    if not found:
        raise InvalidInput(f"{path}: there is no result in it")
    return found


def _entries(path: Path, text: str) -> list[tuple[str, Any]]:
    try:
        document = json.loads(text)
    except RecursionError:
        raise InvalidInput(f"{path}: it is nested too deeply for a result") from None
    except ValueError as error:
        if not text.strip():
            raise InvalidInput(f"{path}: it is empty") from None
        if not str(error).startswith("Extra data"):
            raise InvalidInput(f"{path}: it is no JSON: {error}") from None
        return list(_one_by_one(path, text))
    if isinstance(document, dict) and "policy" not in document and isinstance(document.get("runs"), list):
        document = document["runs"]
    if isinstance(document, list):
        return [(f"{path}, entry {number}", entry) for number, entry in enumerate(document, 1)]
    return [(str(path), document)]


def _one_by_one(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    """Yield the JSON documents of a text, each as (path and line where it begins, document). A document may span several lines.

    Raises:
        InvalidInput: The text contains something that is not JSON. The message names the line.
    """
    decoder, at, number, passed = json.JSONDecoder(), 0, 1, 0
    while rest := text[at:].lstrip():
        at = len(text) - len(rest)
        number, passed = number + text.count("\n", passed, at), at
        try:
            document, at = decoder.raw_decode(text, at)
        except ValueError as error:
            raise InvalidInput(f"{path}:{number}: what begins here is no JSON: {error}") from None
        yield f"{path}:{number}", document


def _search(where: str, entry: Any) -> Search:
    if not isinstance(entry, dict):
        raise InvalidInput(f"{where}: a result is an object, and this is {_kind(entry)}")
    fields = _Fields(where, entry)
    if "policy" not in entry:
        have = ", ".join(list(entry)[:8]) or "nothing"
        raise InvalidInput(
            f'{where}: it is no result of `hopyard simulate --json`, which has at least "policy"; it has {have}'
        )
    if "target" in entry and "time_to_target" not in entry:
        raise InvalidInput(f'{where}: it has "target", but no "time_to_target" (null: never reached)')
    rows = fields.rows("runs", _run)
    runs = None if rows is None else tuple(run for run, _ in rows)
    mode = fields.text("mode")
    if mode not in ("max", "min", None):
        fields.wrong("mode", mode, '"max" or "min"')
    curves = fields.get("curves", dict, "an object with a list for each job")
    return Search(
        where=where,
        source=SearchSource.SIMULATION,
        policy=fields.text("policy"),
        predictor=fields.text("predictor"),
        slots=fields.whole("slots"),
        order_seed=fields.whole("order_seed"),
        traces=fields.rows("traces", _name) or (),
        metric=fields.text("metric") or "metric",
        mode=mode,  # type: ignore[arg-type]  # checked above
        unit=fields.text("unit"),
        target=fields.number("target"),
        time_to_target=fields.number("time_to_target"),
        best=fields.number("best"),
        best_job=fields.text("best_job"),
        time=fields.number("time"),
        max_position=fields.whole("R"),
        curves=_curves(where, curves, runs, _states(fields)) if curves is not None else None,
        runs=runs,
        completed_jobs=fields.rows("jobs_at_R", lambda row: _numbers(row, 2)),
        pools=_pools(where, entry.get("pools"), fields),
        labels=_labels(where, fields),
        confidences=fields.rows("confidences", _confidences),
        slots_per_job=_slots_per_job(fields),
        visits=None if rows is None else tuple(visit for _, visit in rows if visit is not None),
        held=_held(fields),
        moved=fields.rows("moved", _moved),
    )


def _labels(where: str, fields: _Fields) -> dict[str, tuple[tuple[float, float], ...]] | None:
    labels = fields.get("labels", dict, "an object with a list for each job")
    if labels is None:
        return None
    inner = _Fields(f'{where}: "labels"', labels)
    return {job: inner.rows(job, _pair) or () for job in labels}


def _states(fields: _Fields) -> Mapping[str, str]:
    states = fields.get("states", dict, "an object with a state for each job") or {}
    for state in states.values():
        if state not in JobState.__members__:
            fields.wrong("states", state, f"of {', '.join(JobState.__members__)} for each job")
    return states


def _pair(row: Any) -> tuple[float, float]:
    first, second = _numbers(row, 2)
    return first, second


def _confidences(row: Any) -> tuple[float, int, tuple[float, ...]]:
    if not isinstance(row, list) or len(row) != 3 or not isinstance(row[2], list):
        raise TypeError("it must be a time, a number of slots, and a list of chances")
    chances = tuple(sorted((_number(p) for p in row[2]), reverse=True))
    if any(not 0 <= p <= 1 for p in chances):
        raise ValueError("a chance lies in 0..1")
    return _number(row[0]), int(_number(row[1])), chances


def _slots_per_job(fields: _Fields) -> int:
    parameters = fields.get("parameters", dict, "an object") or {}
    return _Fields("parameters", parameters).whole("slots_per_job") or 1


def _pools(where: str, pools: Any, fields: _Fields) -> Any:
    """Return the field "pools" of a result as tuples (seconds since the search began, slots of promising jobs, slots of other jobs).

    The field is either a list of such tuples, or an object with `names` of pools and `points`, lists of a time and one number per name.
    Return an empty tuple if "promising" or "opportunistic" is not among the names.

    Args:
        where: Place of the result in error messages.
        pools: The value of the field.
        fields: All fields of the result, which convert the rows and raise errors.

    Raises:
        InvalidInput: The field has another form.
    """
    if not isinstance(pools, dict):
        return fields.rows("pools", lambda row: _numbers(row, 3))
    names, points = pools.get("names"), pools.get("points")
    if not isinstance(names, list) or not isinstance(points, list):
        fields.wrong("pools", pools, 'a list, or an object with lists of "names" and "points"')
    if not {"promising", "opportunistic"} <= set(names):
        return ()
    first, second = 1 + names.index("promising"), 1 + names.index("opportunistic")
    inner = _Fields(f'{where}: "pools"', pools)
    return inner.rows("points", lambda row: tuple(_numbers(row, 1 + len(names))[place] for place in (0, first, second)))


class _Fields:
    """Typed access to the fields of one result. A missing field and null are returned as None; a wrong type raises `InvalidInput`."""

    def __init__(self, where: str, entry: Mapping[str, Any]) -> None:
        self._where = where
        self._entry = entry

    def wrong(self, name: str, found: object, allowed: str) -> NoReturn:
        raise InvalidInput(f'{self._where}: "{name}" must be {allowed}, and is {_shown(found)}')

    def get(self, name: str, kind: type | tuple[type, ...], allowed: str) -> Any:
        value = self._entry.get(name)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            self.wrong(name, value, allowed)
        return value

    def text(self, name: str) -> str | None:
        found: str | None = self.get(name, str, "a text")
        return None if found is None else printable(found)  # An SVG may not hold control characters.

    def whole(self, name: str) -> int | None:
        found: int | None = self.get(name, int, "a whole number")
        return found

    def number(self, name: str) -> float | None:
        found = self.get(name, (int, float), "a number")
        if found is not None and not math.isfinite(found):
            self.wrong(name, found, "a finite number, or null")
        return None if found is None else float(found)

    def rows(self, name: str, read: Callable[[Any], Any]) -> Any:
        """Return a field that is a list as a tuple; None if it is missing.

        Args:
            name: Name of the field.
            read: Converts one entry. It raises ValueError, KeyError or TypeError for a wrong entry.

        Raises:
            InvalidInput: The field is no list, or `read` rejects an entry.
        """
        rows = self.get(name, list, "a list")
        if rows is None:
            return None
        found = []
        for number, row in enumerate(rows):
            try:
                found.append(read(row))
            except (ValueError, KeyError, TypeError) as error:
                said = f"no {error}" if isinstance(error, KeyError) else error
                raise InvalidInput(f'{self._where}: "{name}"[{number}] is {_shown(row)}: {said}') from None
        return tuple(found)


def _held(fields: _Fields) -> tuple[PartitionReplicas, ...]:
    """Return the partitions of a simulated search. Simulated partitions are equal, so each counts as one byte."""
    held = fields.get("held", dict, "an object with a list of nodes for each partition") or {}
    for nodes in held.values():
        if not isinstance(nodes, list) or not all(isinstance(node, str) for node in nodes):
            fields.wrong("held", nodes, "a list of nodes for each partition")
    return tuple(PartitionReplicas(name, 1, tuple(nodes)) for name, nodes in held.items())


def _moved(row: Any) -> tuple[float, int, int, int]:
    at, direct, fetched, stored = _numbers(row, 4)
    return at, int(direct), int(fetched), int(stored)


def _run(row: Any) -> tuple[PlottedRun, PlottedVisit | None]:
    """Return a run, and its visit if it ran on a data partition."""
    if not isinstance(row, dict):
        raise TypeError("it must be an object")
    start = _number(row["start"])
    end = _number(row["end"]) if row.get("end") is not None else None
    if end is not None and end < start:
        raise ValueError("it ends before it starts")
    reason = row.get("reason")
    if reason is not None and reason not in RunEndReason.__members__:
        raise ValueError(f"reason must be one of {', '.join(RunEndReason.__members__)}, or null")
    mode = row.get("mode", RunMode.TRAIN.value)
    if mode not in RunMode.__members__:
        raise ValueError(f"mode must be one of {', '.join(RunMode.__members__)}")
    slot, job, partition = _name(row["slot"]), _name(row["job"]), row.get("partition", "")
    run = PlottedRun(slot, job, int(_number(row["attempt"])), start, end, reason, mode)
    if not partition or mode == RunMode.PROFILE.value:
        return run, None
    began = row.get("began")
    visit = PlottedVisit(
        slot,
        slot.rpartition("/")[0],
        job,
        _name(partition),
        mode == RunMode.EVALUATE.value,
        start,
        None if began is None else _number(began),
        end,
        reason,
        int(_number(row.get("got", 0))),
        row.get("from_store") is True,
    )
    return run, visit


def _curves(
    where: str, curves: Mapping[str, Any], runs: Sequence[PlottedRun] | None, states: Mapping[str, str]
) -> tuple[JobCurve, ...]:
    by_job: dict[str, list[PlottedRun]] = {}
    for run in sorted(runs or (), key=lambda run: run.attempt):
        by_job.setdefault(run.job, []).append(run)
    found = []
    for job, points in curves.items():
        try:
            values = np.array([[np.nan if value is None else value for value in point] for point in points], float)
            if len(points) and values.shape[1:] != (3,):
                raise ValueError("not three numbers in each")
        except (ValueError, TypeError, IndexError) as error:
            raise InvalidInput(
                f'{where}: "curves": job {job}: it must be a list of [time, position, value]: {error}'
            ) from None
        values = values.reshape(-1, 3)
        if (
            not np.isfinite(values[:, :2]).all()
            or (np.diff(values[:, 0]) < 0).any()
            or (np.diff(values[:, 1]) <= 0).any()
        ):
            raise InvalidInput(f'{where}: "curves": job {job}: times must not fall, and positions must rise')
        values[~np.isfinite(values[:, 2]), 2] = np.nan
        own = by_job.get(job, [])
        end = _ENDS.get(states.get(job) or (own[-1].reason if own else None) or "", JobEnd.OPEN)
        first = {int(np.searchsorted(values[:, 0], run.start)) for run in own}
        resumed = tuple(sorted(index for index in first if 0 < index < len(values)))
        found.append(JobCurve(job, end, values[:, 0], values[:, 1], values[:, 2], resumed))
    return tuple(found)


def _name(value: Any) -> str:
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise TypeError("it must be a text")
    return str(value)


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise TypeError(f"{_shown(value)} is no finite number")
    return float(value)


def _numbers(row: Any, count: int) -> tuple[float, ...]:
    if not isinstance(row, list) or len(row) < count:
        raise TypeError(f"it must be a list of {count} numbers")
    return tuple(_number(value) for value in row[:count])


def _kind(value: object) -> str:
    return {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}.get(
        type(value), "a number"
    )


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
