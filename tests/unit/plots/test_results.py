"""Tests of the files of results and traces: reading, and errors that name the place."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hopyard.errors import InvalidInput, NotFound
from hopyard.plots import JobEnd, SearchSource, read
from tests.unit.plots.given import result

LEAST = {"policy": "bandit", "slots": 2, "target": 0.9, "time_to_target": None}
RUN = {"slot": "n/0", "job": 1, "attempt": 1, "start": 0, "end": 5, "reason": "TERMINATED"}


def test_a_result_is_read(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(result("pop", slots=3, jobs=9)))
    (search,) = read(path)
    assert (search.policy, search.slots, search.source, search.where) == ("pop", 3, SearchSource.SIMULATION, str(path))
    assert search.curves is not None
    assert search.runs is not None
    assert len(search.curves) == 9
    last = {run.job: run.reason for run in sorted(search.runs, key=lambda run: run.attempt)}
    ends = {"UNTIL": JobEnd.COMPLETED, "TERMINATED": JobEnd.TERMINATED, "FAILED": JobEnd.FAILED}
    assert {curve.job: curve.end for curve in search.curves} == {job: ends[str(how)] for job, how in last.items()}
    suspended = {run.job for run in search.runs if run.attempt == 2}
    assert suspended
    assert {curve.job for curve in search.curves if curve.resumed} == suspended


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([LEAST, LEAST]),
        json.dumps({"runs": [LEAST, LEAST], "host": "laptop"}, indent=1),
        f"{json.dumps(LEAST)}\n\n{json.dumps(LEAST)}\n",
        f"{json.dumps(LEAST, indent=2)}\n{json.dumps(LEAST, indent=2)}\n",
    ],
)
def test_several_results_are_a_list_an_object_or_follow_each_other(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    packed = tmp_path / "r.jsonl.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert [search.policy for search in read(path)] == ["bandit", "bandit"]
    if text.startswith("{\n  "):
        assert len(read(packed)) == 2  # a .jsonl file, but not of traces
    if text.startswith('{"policy"'):
        assert [search.where for search in read(packed)] == [f"{packed}:1", f"{packed}:3"]


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({}, 'it is no result of `hopyard simulate --json`, which has at least "policy"; it has nothing'),
        ({"jobs": 3, "loss": 2}, "it has jobs, loss"),
        (7, "a result is an object, and this is a number"),
        ({**LEAST, "slots": "2"}, '"slots" must be a whole number, and is "2"'),
        ({**LEAST, "slots": True}, '"slots" must be a whole number, and is true'),
        ({**LEAST, "target": "high"}, '"target" must be a number, and is "high"'),
        ({**LEAST, "mode": "up"}, '"mode" must be "max" or "min", and is "up"'),
        ({"policy": "pop", "target": 0.9}, 'it has "target", but no "time_to_target" (null: never reached)'),
        ({**LEAST, "runs": [RUN, {**RUN, "end": -1}]}, '"runs"[1] is {"slot"'),
        ({**LEAST, "runs": [{**RUN, "end": -1}]}, "it ends before it starts"),
        ({**LEAST, "runs": [{**RUN, "reason": "BORED"}]}, "reason must be one of UNTIL, SUSPENDED,"),
        ({**LEAST, "runs": [{"job": "1"}]}, "no 'start'"),
        ({**LEAST, "pools": [[0, 1]]}, '"pools"[0] is [0, 1]: it must be a list of 3 numbers'),
        ({**LEAST, "jobs_at_R": [[0, None]]}, "null is no finite number"),
        ({**LEAST, "curves": []}, '"curves" must be an object with a list for each job, and is []'),
        ({**LEAST, "curves": {"1": [[1, 1]]}}, "job 1: it must be a list of [time, position, value]"),
        ({**LEAST, "curves": {"1": [[1, 1, 0.1], [1]]}}, "job 1: it must be a list of [time, position, value]"),
        ({**LEAST, "curves": {"1": [[1, 1, "a"]]}}, "job 1: it must be a list of [time, position, value]"),
        ({**LEAST, "curves": {"1": [[2, 1, 0], [1, 2, 0]]}}, "times must not fall, and positions must rise"),
    ],
)
def test_what_is_wrong_with_a_result_is_named(tmp_path: Path, entry: Any, told: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps([LEAST, entry]))
    with pytest.raises(InvalidInput) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}, entry 2: ")
    assert told in str(caught.value)


def test_what_is_not_finite_is_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps({**LEAST, "curves": {"1": [[1, 1, None], [2, 2, 0.5]], "2": []}}))
    (search,) = read(path)
    assert search.curves is not None
    assert str(search.curves[0].values.tolist()) == "[nan, 0.5]"
    assert len(search.curves[1].values) == 0


def _write(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


@pytest.mark.parametrize(
    ("make", "error", "told"),
    [
        (lambda path: None, NotFound, "there is no such file"),
        (lambda path: path.mkdir(), InvalidInput, "it is a folder; name the files in it"),
        (_write(""), InvalidInput, "it is empty"),
        (_write("[]"), InvalidInput, "there is no result in it"),
        (_write("{"), InvalidInput, "it is no JSON"),
        (_write("[" * 100_000), InvalidInput, "it is nested too deeply"),
        (_write(f"{json.dumps(LEAST)}\n{{"), InvalidInput, ":2: what begins here is no JSON"),
        (lambda path: path.write_bytes(b"\xff\xfe"), InvalidInput, "it is no text in UTF-8"),
        (lambda path: path.write_bytes(gzip.compress(b"[]" * 99)[:-9]), InvalidInput, "only a part of it"),
    ],
)
def test_a_file_that_is_none_is_told(
    tmp_path: Path, make: Callable[[Path], object], error: type[Exception], told: str
) -> None:
    path = tmp_path / "r.json"
    make(path)
    with pytest.raises(error) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))
    assert told in str(caught.value)


def test_traces_are_known_by_their_first_line(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    lines = [
        {"job": "1", "hyperparameters": {}, "metric": "acc", "mode": "max", "metrics": [0.1, None], "seconds": [2, 3]},
        {"job": "2", "hyperparameters": {}, "metric": "acc", "mode": "max", "metrics": [0.2], "seconds": [4]},
    ]
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    (search,) = read(path)
    assert (search.source, search.metric, search.durations) == (SearchSource.TRACES, "acc", {"1": 5.0, "2": 4.0})
    assert search.curves is not None
    assert search.curves[0].times.tolist() == [2.0, 5.0]
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"job": "1"}\n')
    with pytest.raises(InvalidInput, match=r"bad\.jsonl:1: "):
        read(bad)


def test_pools_of_a_policy_without_pools_and_of_one_with_them(tmp_path: Path) -> None:
    path = tmp_path / "r.json"

    def pools(names: list[str]) -> object:
        path.write_text(json.dumps({**LEAST, "pools": {"names": names, "points": [[0.0, 1, 2, 3], [5.0, 4, 5, 6]]}}))
        return read(path)[0].pools

    assert pools(["running", "suspended", "pending"]) == ()
    assert pools(["opportunistic", "suspended", "promising"]) == ((0.0, 3.0, 1.0), (5.0, 6.0, 4.0))
    with pytest.raises(InvalidInput, match=r'"pools": "points"\[0\] is .*: it must be a list of 5 numbers'):
        pools(["promising", "opportunistic", "suspended", "pending"])
