"""Tests of `split`: each example is in exactly one partition, equal seeds give equal partitions, and sizes are as requested."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard._runtime.datasets.manifest import FILE, manifest_at, read_manifest
from hopyard._runtime.datasets.reader import examples_in
from hopyard._runtime.datasets.split import SplitPlan, rows_of, sizes, split
from hopyard.errors import AlreadyExists, InvalidInput, NotFound, Unsupported

pytestmark = pytest.mark.quick

speeds = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=8)


@pytest.mark.merge
@given(st.integers(0, 10_000), speeds)
def test_sizes_add_up_and_keep_the_proportion(total: int, weights: list[float]) -> None:
    parts = sizes(total, weights)
    assert sum(parts) == total
    if total >= len(weights):
        assert min(parts) >= 1
    fair = [total * weight / sum(weights) for weight in weights]
    if min(fair) >= 1:
        assert all(abs(part - exact) < 1 for part, exact in zip(parts, fair, strict=True))
    assert max(sizes(total, [1.0] * len(weights))) - min(sizes(total, [1.0] * len(weights))) <= 1


@pytest.mark.merge
@given(st.integers(8, 500), speeds, st.floats(0.0, 0.5), st.integers(1, 3), st.integers(0, 2**32))
def test_each_example_is_in_exactly_one_partition(
    total: int, weights: list[float], fraction: float, eval_into: int, seed: int
) -> None:
    plan = SplitPlan(len(weights), seed, tuple(weights), fraction, eval_into)
    try:
        rows = rows_of(total, plan)
    except InvalidInput as refused:
        assert "examples are too few" in str(refused)  # noqa: PT017 - not all of them are refused
        return
    everything = np.concatenate(list(rows.values()))
    assert sorted(everything.tolist()) == list(range(total))
    assert all(len(chosen) for chosen in rows.values())
    again = rows_of(total, plan)
    assert all(np.array_equal(rows[name], again[name]) for name in rows)
    evaluated = sum(len(chosen) for name, chosen in rows.items() if name.startswith("eval/"))
    assert evaluated == round(total * fraction)


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    file = tmp_path / "all.npz"
    np.savez(file, x=np.arange(200.0).reshape(100, 2), y=np.arange(100), name=np.array([f"e{i}" for i in range(100)]))
    return file


def test_an_npz_is_cut_with_all_its_arrays_in_step(npz: Path, tmp_path: Path) -> None:
    made = split(npz, tmp_path / "out", SplitPlan(3, 7, (1.0, 1.0, 2.0), 0.2, 2))
    assert [(one.name, one.file, one.examples) for one in made] == [
        ("train/0", "train-0.npz", 20),
        ("train/1", "train-1.npz", 20),
        ("train/2", "train-2.npz", 40),
        ("eval/0", "eval-0.npz", 10),
        ("eval/1", "eval-1.npz", 10),
    ]
    seen: list[int] = []
    for one in made:
        file = tmp_path / "out" / one.file
        part = np.load(file)
        assert part["x"][:, 0].tolist() == [2.0 * y for y in part["y"]]
        assert part["name"].tolist() == [f"e{y}" for y in part["y"]]
        assert (examples_in(file), file.stat().st_size) == (one.examples, one.size_bytes)
        seen += part["y"].tolist()
    assert sorted(seen) == list(range(100))
    assert seen != sorted(seen)
    assert read_manifest((tmp_path / "out" / FILE).read_text(), "here") == made
    assert manifest_at(f"file://{tmp_path}/out/") == made
    again = split(npz, tmp_path / "again", SplitPlan(3, 7, (1.0, 1.0, 2.0), 0.2, 2))
    assert again == made  # equal hashes, too
    assert split(npz, tmp_path / "other", SplitPlan(3, 8, (1.0, 1.0, 2.0), 0.2, 2)) != made
    with pytest.raises(AlreadyExists, match="it holds eval-0"):
        split(npz, tmp_path / "out", SplitPlan(2))


@pytest.mark.merge
def test_parquet_is_cut_with_all_its_columns(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "all.parquet"
    parquet.write_table(arrow.table({"x": list(range(10)), "t": [str(i) for i in range(10)]}), file)
    made = split(file, tmp_path / "out", SplitPlan(3))
    tables = [parquet.read_table(tmp_path / "out" / one.file) for one in made]
    assert [table.num_rows for table in tables] == [one.examples for one in made] == [4, 3, 3]
    assert [examples_in(tmp_path / "out" / one.file) for one in made] == [4, 3, 3]
    rows = [row for table in tables for row in table.to_pylist()]
    assert sorted(row["x"] for row in rows) == list(range(10))
    assert all(row["t"] == str(row["x"]) for row in rows)


def test_parquet_without_its_library_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("importlib.import_module", missing)
    file = tmp_path / "all.parquet"
    file.write_bytes(b"PAR1")
    with pytest.raises(Unsupported, match=r"pip install .*\[data\]'"):
        split(file, tmp_path / "out", SplitPlan(2))
    with pytest.raises(Unsupported, match=r"pip install .*\[data\]'"):
        manifest_at("s3://bucket/folder")
    assert examples_in(file) is None
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (SplitPlan(0), "found 0 to train on"),
        (SplitPlan(2, speeds=(1.0,)), "found 1 for 2 partitions; each has one"),
        (SplitPlan(2, speeds=(1.0, 0.0)), "allowed are numbers above 0"),
        (SplitPlan(2, eval_fraction=1.0), "found 1.0, allowed is 0 to below 1"),
        (SplitPlan(2, seed=-1), "found -1, allowed is 0 or more"),
        (SplitPlan(101), "100 examples are too few for 101 partitions to train on"),
        (
            SplitPlan(60, eval_fraction=0.5),
            "100 examples are too few for 60 partitions to train on and 1 to evaluate on",
        ),
    ],
)
def test_a_plan_that_cannot_be_is_refused_and_nothing_is_left(
    npz: Path, tmp_path: Path, plan: SplitPlan, expected: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        split(npz, tmp_path / "out", plan)
    assert expected in str(refused.value)
    assert not list((tmp_path / "out").glob("*"))


def test_files_that_cannot_be_cut_are_refused(tmp_path: Path) -> None:
    uneven = tmp_path / "uneven.npz"
    np.savez(uneven, x=np.zeros(3), y=np.zeros(4), z=np.float64(1))
    pickled = tmp_path / "pickled.npz"
    np.savez(pickled, x=np.array([object()], dtype=object))
    broken = tmp_path / "broken.npz"
    broken.write_bytes(b"nothing")
    empty = tmp_path / "empty.npz"
    with zipfile.ZipFile(empty, "w"):
        pass
    other = tmp_path / "other.csv"
    other.write_text("x")
    for file, words in (
        (uneven, "all arrays need the same first length, that of the examples; found x 3, y 4, z none"),
        (pickled, "it cannot be read as npz of plain arrays"),
        (broken, "it cannot be read as npz of plain arrays"),
        (empty, "found no array"),
        (other, "found .csv, allowed are .npz and .parquet"),
    ):
        with pytest.raises(InvalidInput, match=words):
            split(file, tmp_path / "out", SplitPlan(1))
    with pytest.raises(NotFound):
        split(tmp_path / "none.npz", tmp_path / "out", SplitPlan(1))


@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        "[]",
        '{"format": 2, "partitions": []}',
        '{"format": 1, "partitions": [{}]}',
        '{"format": 1, "partitions": [{"name": "train/0", "file": "../x", "size_bytes": 1, "sha256": "", "examples": 1}]}',
    ],
)
def test_what_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="here: it is not what `hopyard data split` writes"):
        read_manifest(text, "here")


def test_a_url_without_a_manifest_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is nothing; `hopyard data split` writes it"):
        manifest_at(f"file://{tmp_path}")
    with pytest.raises(NotFound, match=r"/no%20such: there is no such folder$"):
        manifest_at(f"file://{tmp_path}/no%20such")
    with pytest.raises(InvalidInput, match="nonsense://x"):
        manifest_at("nonsense://x")
