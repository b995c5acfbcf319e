"""Tests of the scheduler's journal: calls during an append that waits, and errors of reading."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, cast

import pytest

from hopyard._net.rpc import retry
from hopyard.errors import Exhausted, InvalidInput
from hopyard.policy.vocabulary import StreamId
from hopyard.v1 import appstat_pb2
from hopyard_engine.journal import format as journal_format
from hopyard_engine.journal.format import FORMAT, RecordError
from hopyard_scheduler.runtime import journal
from hopyard_scheduler.runtime.journal import Journal, JournalEntry

pytestmark = pytest.mark.quick


class FullStore:
    """Simulates an AppStat whose disk is full: while `full`, it refuses appends with records, and accepts an append without any."""

    def __init__(self) -> None:
        self.full = True
        self.positions: list[tuple[str, int]] = []
        self.stored = [1, 2]

    async def AppendJournal(self, request: appstat_pb2.AppendJournalRequest) -> appstat_pb2.AppendJournalResponse:
        if request.records and self.full:
            raise Exhausted("no space left on its disk")
        self.positions += [(record.stream, record.position) for record in request.records]
        return appstat_pb2.AppendJournalResponse()

    async def ReadJournal(
        self, request: appstat_pb2.ReadJournalRequest
    ) -> AsyncIterator[appstat_pb2.ReadJournalResponse]:
        response = appstat_pb2.ReadJournalResponse()
        payload = b'{"at":1.0,"node":"n"}'
        for position in self.stored:
            response.records.add(
                stream=request.stream, position=position, kind="NodeExpired", payload=payload, version=FORMAT
            )
        yield response


async def full(monkeypatch: pytest.MonkeyPatch) -> tuple[Journal, FullStore, asyncio.Event, asyncio.Task[None]]:
    """Start an append to a full store. Return the journal, the store, an event that lets the append try again, and its task."""
    waits, room = asyncio.Event(), asyncio.Event()

    async def sleep(_: float) -> None:
        waits.set()
        await room.wait()

    monkeypatch.setattr(journal, "retry", partial(retry, sleep=sleep))
    store = FullStore()
    found = Journal(cast("Any", store))
    append = asyncio.create_task(found.append([JournalEntry(StreamId("x"), "Kind", b"{}")], [], 1.0))
    await waits.wait()
    return found, store, room, append


async def test_a_look_at_the_epoch_leaves_the_trouble_of_an_append_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    found, store, room, append = await full(monkeypatch)
    trouble = "the journal cannot be written: no space left on its disk"
    assert found.trouble == trouble
    await found.confirm()
    assert found.trouble == trouble
    store.full = False
    room.set()
    await append
    assert found.trouble == ""


async def test_a_stream_that_is_read_while_an_append_waits_goes_on_behind_its_last_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, store, room, append = await full(monkeypatch)
    assert len([event async for event in found.read(StreamId("finished"))]) == 2
    store.full = False
    room.set()
    await append
    await found.append(
        [JournalEntry(StreamId("finished"), "Kind", b"{}"), JournalEntry(StreamId("x"), "Kind", b"{}")], [], 2.0
    )
    assert store.positions == [("x", 1), ("finished", 3), ("x", 2)]


async def test_a_record_of_another_format_ends_the_read_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FullStore()
    monkeypatch.setattr(journal_format, "FORMAT", FORMAT + 1)
    place = f"^journal of cluster, record 1: found format version {FORMAT}, supported is version {FORMAT + 1}; use the"
    with pytest.raises(InvalidInput, match=place):
        await anext(Journal(cast("Any", store)).read(StreamId("cluster")))


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ([2], "^journal of x, record 2: record 1 before it is missing"),
        ([1, 2, 5], "^journal of x, record 5: records 3 to 4 before it are missing"),
        ([1, 2, 2], "^journal of x, record 2: found it after record 2"),
    ],
)
async def test_a_read_ends_at_a_missing_record(stored: list[int], message: str) -> None:
    store = FullStore()
    store.stored = stored
    with pytest.raises(RecordError, match=message):
        _ = [event async for event in Journal(cast("Any", store)).read(StreamId("x"))]
