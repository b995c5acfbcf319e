"""Tests of `ReadProjections` on a database: all rows are returned, with little memory."""

from __future__ import annotations

import sqlite3
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hopyard.v1 import appstat_pb2 as pb
from hopyard_appstat.database.read_only import read_only_engine
from hopyard_appstat.database.store_reader import StoreReader
from hopyard_appstat.query_servicers import AppStatQueries
from tests.integration.appstat.backup_data import DATABASE, DataDirectory

REPORTS = 20_000
REQUEST = pb.ReadProjectionsRequest(stream="e", experiments=["e"])
TRIALS = """
    INSERT INTO plan_nodes (key, root, parent, start, values_json) VALUES ('n1', 'r', '', 0, '{}'), ('n2', 'r', 'n1', 2, '{}');
    INSERT INTO plan_stretches (experiment, job, start, "end", node) VALUES
        ('e', '1', 0, 2, 'n1'), ('e', '1', 2, 4, 'n2'), ('e', '2', 0, 2, 'n1'), ('f', '1', 0, 2, 'n1');
    INSERT INTO plan_snapshots (experiment, job, position, sha256, size_bytes, provider, owner) VALUES
        ('e', '1', 2, 'a', 1, 'p', 'e'), ('e', '1', 4, 'b', 1, 'p', 'e'),
        ('e', '3', 2, 'c', 1, 'p', 'e'), ('e', '3', 4, 'd', 1, 'p', 'e'), ('f', '1', 2, 'a', 1, 'p', 'f');
"""


@pytest.fixture
def queries(tmp_path: Path) -> Iterator[AppStatQueries]:
    """The queries of a database with one experiment with many reports, and of another one."""
    data = DataDirectory(tmp_path / "data")
    data.add_records("e", 1, 3)
    columns = "experiment, job, attempt, position, seconds, at, part, examples, at_until, finished, metrics"
    values = "SELECT 'e', '1', 1, n, 1.0, 1.0, '', 0, 0.0, 0, '{\"' || printf('%01000d', n) || '\":1.0}' FROM numbers"
    with closing(sqlite3.connect(data.path / DATABASE)) as database, database:
        database.execute(
            f"WITH numbers(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM numbers WHERE n < {REPORTS}) "
            f"INSERT INTO statistics ({columns}) {values}"
        )
        database.executescript(TRIALS)
    reader = StoreReader(read_only_engine(data.path / DATABASE))
    yield AppStatQueries(reader, tmp_path)  # type: ignore[abstract]
    reader.release()


async def test_all_rows_of_a_long_stream_are_read_with_little_memory(queries: AppStatQueries) -> None:
    reports, lengths = 0, set[int]()
    tracemalloc.start()
    try:
        async for answer in queries.ReadProjections(REQUEST, None):
            reports += sum(row.HasField("statistic") for row in answer.projections)
            lengths.add(answer.length)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (reports, lengths) == (REPORTS, {3})
    assert peak < REPORTS * 1000 * 0.7  # The answer has more bytes.


async def test_each_trial_has_its_path_and_snapshots(queries: AppStatQueries) -> None:
    found = {}
    async for answer in queries.ReadProjections(REQUEST, None):
        for row in answer.projections:
            if row.HasField("plan_trial"):
                one = row.plan_trial
                found[one.job] = one.root, [step.node for step in one.path], [saved.sha256 for saved in one.snapshots]
    assert found == {"1": ("r", ["n1", "n2"], ["a", "b"]), "2": ("r", ["n1"], []), "3": ("", [], ["c", "d"])}


async def test_an_answer_that_is_not_read_to_its_end_keeps_no_transaction(queries: AppStatQueries) -> None:
    async for _ in queries.ReadProjections(REQUEST, None):
        assert queries._reader._reader.pool.checkedout() == 0  # type: ignore[attr-defined]
