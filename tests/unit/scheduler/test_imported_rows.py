"""Tests that the rows which an import writes for the recorded journals are those that follow from the imported records."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard.client.transfer.archive import ArchiveReader
from hopyard.policy.vocabulary import StreamId
from hopyard.v1 import appstat_pb2
from hopyard_engine.core.events import Imported
from hopyard_scheduler.experiments.stream_import import StreamImport
from hopyard_scheduler.runtime.journal_rows import JournalRows, RowTable
from tests.golden.journals import recorded

JOURNALS = recorded()


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(name, marks=() if name in ("stage_tree", "mop", "asha") else pytest.mark.nightly)
        for name in JOURNALS
    ],
)
def test_the_rows_of_an_import_follow_from_its_records(policy: str) -> None:
    with ArchiveReader(Path(JOURNALS[policy])) as archive:
        lines = b"".join(archive.unpacked("journal.jsonl")).splitlines()
    imported, table, made = StreamImport(), RowTable(), JournalRows()
    parts = [imported.take(lines)]
    stream = StreamId(imported.experiment.id)
    parts += imported.finish(Imported(imported.at + 1.0, stream, "a request", ()))
    records: list[appstat_pb2.JournalRecord] = [record for part in parts for record in part.records]
    for part in parts:
        table.add(part.projections)
    for record in records:
        made.take(record)
    found = made.table().rows
    assert found.keys() == table.rows.keys()
    assert {key: str(row) for key, row in found.items()} == {key: str(row) for key, row in table.rows.items()}
    assert len(found) > 10
