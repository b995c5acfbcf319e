"""Tests of files of traces: they are read back exactly, and errors name the line."""

from __future__ import annotations

import gzip
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard.errors import AlreadyExists, InvalidInput, NotFound
from hopyard.traces import Trace, document, need_writable, read_traces, to_line, write_traces

pytestmark = pytest.mark.quick

NAN = math.nan

TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
NUMBER = st.floats()
SECONDS = st.floats(0, allow_infinity=False)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def traces(draw: st.DrawFn) -> list[Trace]:
    """Draw traces of one search: the same metric and mode, and different jobs."""
    metric, mode = draw(TEXT), draw(st.sampled_from(["max", "min"]))
    made = []
    for job in draw(st.lists(TEXT, min_size=1, max_size=5, unique=True)):
        count = draw(st.integers(1, 6))

        def column(values: st.SearchStrategy[Any], count: int = count) -> tuple[Any, ...]:
            return tuple(draw(st.lists(values, min_size=count, max_size=count)))

        steps = column(st.integers(1, 3))
        positions = tuple(sum(steps[: index + 1]) for index in range(count))
        names = draw(st.lists(TEXT.filter(lambda name: name != metric), max_size=2, unique=True))
        others = {name: column(NUMBER) for name in names}
        hyperparameters = draw(st.dictionaries(TEXT, JSON, max_size=4))
        made.append(
            Trace(
                job,
                hyperparameters,
                metric,
                mode,  # type: ignore[arg-type]
                column(NUMBER),
                column(SECONDS),
                draw(st.sampled_from([positions, ()])),
                others,
            )
        )
    return made


@pytest.mark.merge
@given(traces(), st.sampled_from(["t.jsonl", "t.jsonl.gz"]))
def test_what_was_written_is_read(tmp_path_factory: pytest.TempPathFactory, made: list[Trace], name: str) -> None:
    path = tmp_path_factory.mktemp("traces") / name
    assert write_traces(path, made) == len(made)
    assert read_traces(path) == made
    assert os.listdir(path.parent) == [name]
    before = path.read_bytes()
    write_traces(path, read_traces(path))
    assert path.read_bytes() == before


GOOD: dict[str, Any] = {
    "job": "7",
    "hyperparameters": {"lr": 0.1},
    "metric": "accuracy",
    "mode": "max",
    "metrics": [0.11, None, 0.35],
    "seconds": [1.9, 0, 1.8],
}


def trace(job: str = "1", **more: Any) -> Trace:
    return Trace(**{**GOOD, "job": job, **more})


def line(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode() + b"\n"


def without(name: str) -> bytes:
    return json.dumps({key: value for key, value in GOOD.items() if key != name}).encode() + b"\n"


def test_a_line_is_what_the_format_says(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    path.write_bytes(line() + line(job="8", positions=[2, 4, 8], others={"loss": [1, None, 0.5]}).rstrip())
    first, second = read_traces(path)
    assert first == Trace("7", {"lr": 0.1}, "accuracy", "max", (0.11, NAN, 0.35), (1.9, 0.0, 1.8))
    assert first.positions == range(1, 4)
    assert second.positions == (2, 4, 8)
    assert second.others == {"loss": (1.0, NAN, 0.5)}
    write_traces(path, [first, second])
    assert [json.loads(one) for one in path.read_text().splitlines()] == [
        GOOD,
        {**GOOD, "job": "8", "positions": [2, 4, 8], "others": {"loss": [1, None, 0.5]}},
    ]


def test_curves_may_be_short_empty_of_values_and_unequal(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    made = [
        trace("1", metrics=(0.5,), seconds=(1.0,)),
        trace("2", metrics=(NAN, math.inf, -math.inf), seconds=(1.0, 0.0, 2.0)),
        trace("3", metrics=tuple(range(100)), seconds=(0.0,) * 100),
    ]
    write_traces(path, made)
    assert read_traces(path) == made
    assert json.loads(path.read_text().splitlines()[1])["metrics"] == [None, None, None]
    assert made[1].metrics[1] is made[1].metrics[0] is math.nan


def test_several_files_are_read_as_one(tmp_path: Path) -> None:
    one, two = tmp_path / "1.jsonl", tmp_path / "2.jsonl.gz"
    write_traces(one, [trace("1")])
    write_traces(two, [trace("2")])
    assert [found.job for found in read_traces(str(two), one)] == ["2", "1"]
    with pytest.raises(
        InvalidInput, match=r'1\.jsonl:1: job "1" stands at .*1\.jsonl:1 already; each job has one line'
    ):
        read_traces(one, two, one)
    with pytest.raises(InvalidInput, match="no file of traces is named"):
        read_traces()


BAD: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"job 7\n", r"it is no JSON: Expecting value"),
    "cut": (line()[:-20], r"it is no JSON: .*; the file ends within the line: it is truncated"),
    "no object": (b"[1, 2]\n", r'found \[1, 2\], allowed is an object with "job", "hyperparameters"'),
    "blank": (b"\n", "an empty line; each line is a job"),
    "no UTF-8": (b'{"job": "\xff"}\n', "it is not UTF-8 .* at byte 9"),
    "gzip": (gzip.compress(line()), r"it is not UTF-8 .*; it is gzip, so its name must end in \.gz"),
    "twice in one": (b'{"job": "1", "job": "2"}\n', '"job" stands twice in one object'),
    "unknown": (line(metrik=1), 'unknown field "metrik"; allowed are "job", .*"others"'),
    "a constant": (line().replace(b"null", b"NaN"), "NaN is no JSON; what is not finite is null"),
    "infinity": (line().replace(b"1.9", b"-Infinity"), "-Infinity is no JSON"),
    "beyond a double": (line().replace(b"null", b"1e999"), "found a metric beyond the largest double"),
    "an endless integer": (line(metrics=[10**400, 1, 2]), '"metrics": found a whole number beyond the largest double'),
    "too deep": (b"[" * 100_000 + b"\n", "it is no JSON: .*recursion"),
    **{f"without {name}": (without(name), f'"{name}" is missing') for name in GOOD},
    "without two": (json.dumps({"job": "7"}).encode() + b"\n", '"hyperparameters", "metric", .* are missing'),
    "job": (line(job=7), '"job": found 7, allowed is a text that is not empty'),
    "no job": (line(job=""), "\"job\": found ''"),
    "hyperparameters": (line(hyperparameters=[1]), r'"hyperparameters": found \[1\], allowed is an object'),
    "a huge hyperparameter": (line(hyperparameters={"n": 2**80}), '"hyperparameters": .* does not fit in 64 bits'),
    "metric": (line(metric=None), '"metric": found None, allowed is a text'),
    "mode": (line(mode="most"), '"mode": found \'most\', allowed are "max" and "min"'),
    "metrics": (line(metrics=0.5), '"metrics": found 0.5, allowed is a list of numbers and null'),
    "a metric": (line(metrics=[1, "x", 2]), r'"metrics"\[1\]: found \'x\', allowed are numbers and null'),
    "a boolean": (line(metrics=[1, True, 2]), r'"metrics"\[1\]: found True'),
    "no metrics": (line(metrics=[], seconds=[]), '"metrics": found none; a trace has at least one report'),
    "seconds": (line(seconds={}), '"seconds": found {}, allowed is a list of numbers of 0 or more'),
    "a null second": (line(seconds=[1, None, 2]), r'"seconds"\[1\]: found None, allowed are numbers of 0 or more'),
    "a negative second": (line(seconds=[1, 2, -0.5]), r'"seconds"\[2\]: found -0.5, allowed are numbers of 0 or more'),
    "an infinite second": (line().replace(b"1.9", b"1e999"), r'"seconds"\[0\]: found inf'),
    "few seconds": (line(seconds=[1]), '"seconds": 1 value, but "metrics" has 3'),
    "many seconds": (line(seconds=[1] * 5), '"seconds": 5 values, but "metrics" has 3'),
    "few positions": (line(positions=[1]), '"positions": 1 value, but "metrics" has 3'),
    "no positions": (line(positions=[]), '"positions": found none; left out, they are 1, 2, 3'),
    "position 0": (line(positions=[0, 1, 2]), r'"positions"\[0\]: found 0, allowed are whole numbers from 1 on'),
    "half a position": (line(positions=[1, 1.5, 2]), r'"positions"\[1\]: found 1.5, allowed are whole numbers'),
    "falling positions": (line(positions=[1, 3, 3]), r'"positions"\[2\]: found 3 after 3, allowed are .* each above'),
    "others": (line(others=[1]), '"others": found .1., allowed is an object'),
    "others with its own": (line(others={"accuracy": [1, 2, 3]}), "\"others\": found the name 'accuracy', allowed are"),
    "few others": (line(others={"loss": [1]}), '"others": "loss": 1 value, but "metrics" has 3'),
    "an other": (line(others={"loss": ["x", 1, 2]}), r'"others": "loss"\[0\]: found \'x\''),
    "a job twice": (line(), 'job "7" stands at .*traces.jsonl:1 already; each job has one line'),
    "another metric": (line(job="8", metric="loss"), '"metric" is "loss", but "accuracy" at .*traces.jsonl:1; traces'),
    "another mode": (line(job="8", mode="min"), '"mode" is "min", but "max" at .*traces.jsonl:1'),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_named(name: str, tmp_path: Path) -> None:
    bad, told = BAD[name]
    for path, opened in ((tmp_path / "traces.jsonl", open), (tmp_path / "traces.jsonl.gz", gzip.open)):
        with opened(path, "wb") as file:
            file.write(line() + bad)
        with pytest.raises(InvalidInput, match=f"^{path}:2: {told.replace('traces.jsonl', path.name)}") as caught:
            read_traces(path)
        assert "\n" not in str(caught.value)


def test_a_line_without_end_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hopyard.traces.files.MAX_LINE_BYTES", 100)
    path = tmp_path / "traces.jsonl"
    path.write_bytes(b" " * 1000)
    with pytest.raises(InvalidInput, match=r"traces\.jsonl:1: the line is longer than the 100 bytes that are allowed"):
        read_traces(path)


@pytest.mark.merge
def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl.gz"
    with pytest.raises(NotFound, match=f"^{path}: there is no such file"):
        read_traces(path)
    with pytest.raises(InvalidInput, match=f"^{tmp_path}: it is a folder, not a file of traces"):
        read_traces(tmp_path)
    for empty in (b"", gzip.compress(b"")):
        path.write_bytes(empty)
        with pytest.raises(InvalidInput, match=f"^{path}: it is empty; a file of traces has a job a line"):
            read_traces(path)
    path.write_bytes(line())
    with pytest.raises(InvalidInput, match=f"^{path}: it is not what gzip wrote, or only a part of it: Not a gzipped"):
        read_traces(path)
    packed = gzip.compress(b"".join(line(job=str(job), metrics=[job, job, 1 / (job + 1)]) for job in range(2000)))
    for broken in (
        packed[:-4],
        packed[: len(packed) // 2],
        packed[:-8] + bytes(8),
        b"".join((packed[:99], packed[150:])),
    ):
        path.write_bytes(broken)
        with pytest.raises(InvalidInput, match=f"^{path}: it is not what gzip wrote, or only a part of it"):
            read_traces(path)


def test_nothing_is_written_that_could_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    write_traces(path, [trace("1")])
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match=f"^{path}: there are no traces to write"):
        write_traces(path, [])
    with pytest.raises(InvalidInput, match=r'^trace 2: job "1" stands at trace 1 already'):
        write_traces(path, [trace("1"), trace("1")])
    with pytest.raises(InvalidInput, match=r'^trace 2: "mode" is "min", but "max" at trace 1'):
        write_traces(path, [trace("1"), trace("2", mode="min")])
    for hyperparameters in ({"lr": NAN}, {1: 2}, {"x": {1, 2}}):
        with pytest.raises(InvalidInput, match=r'^"hyperparameters": .*allowed are JSON values by name'):
            trace("1", hyperparameters=hyperparameters)
    assert os.listdir(tmp_path) == [path.name]
    assert path.read_bytes() == before


def test_a_file_s_bytes_depend_on_nothing_but_its_traces(tmp_path: Path) -> None:
    one, two = tmp_path / "one.gz", tmp_path / "elsewhere" / "two.gz"
    write_traces(one, [trace("1")])
    os.utime(one, (0, 0))
    write_traces(two, [trace("1")])
    assert one.read_bytes() == two.read_bytes()
    assert one.read_bytes()[4:8] == bytes(4)  # the time in gzip's header
    assert gzip.decompress(one.read_bytes()).decode() == to_line(trace("1"))


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "traces.jsonl")
    need_writable(tmp_path / "link.jsonl")
    write_traces(tmp_path / "link.jsonl", [trace("1")])
    assert (tmp_path / "link.jsonl").is_symlink()
    assert read_traces(tmp_path / "traces.jsonl") == [trace("1")]


def test_only_traces_are_written_over(tmp_path: Path) -> None:
    fresh = tmp_path / "new" / "traces.jsonl"
    need_writable(fresh)
    assert os.listdir(fresh.parent) == []
    write_traces(fresh, [trace("1")])
    need_writable(fresh)
    (tmp_path / "empty").touch()
    need_writable(tmp_path / "empty")
    other = tmp_path / "train.py"
    other.write_text("import torch\n")
    with pytest.raises(AlreadyExists, match=f"^{other}: it is there already and holds no traces; choose another name"):
        need_writable(other)
    for place in (tmp_path, Path(os.devnull)):
        with pytest.raises(AlreadyExists, match=f"^{place}: it is no ordinary file"):
            need_writable(place)
    with pytest.raises(InvalidInput, match=f"^traces cannot be written to {other}/x: {other}: File exists"):
        need_writable(other / "x")
    with pytest.raises(InvalidInput, match="File name too long"):
        need_writable(tmp_path / ("x" * 300))


def test_a_document_is_plain_json() -> None:
    made = trace("1", positions=(1, 2, 5), others={"loss": (NAN, 1.0, 2.0)})
    assert json.loads(json.dumps(document(made), allow_nan=False)) == json.loads(to_line(made))
    assert document(made)["others"] == {"loss": [None, 1.0, 2.0]}
