"""What is said while the journal cannot be written."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast

import pytest

from hopyard.errors import Exhausted
from hopyard.rpc import retry
from hopyard.v1 import appstat_pb2
from hopyard_scheduler import journal
from hopyard_scheduler.journal import Entry, Journal


class FullStore:
    """Takes no records while it is full; a look that writes nothing finds no trouble."""

    def __init__(self) -> None:
        self.full = True

    async def AppendJournal(self, request: appstat_pb2.AppendJournalRequest) -> appstat_pb2.AppendJournalResponse:
        if request.records and self.full:
            raise Exhausted("no space left on its disk")
        return appstat_pb2.AppendJournalResponse()


async def test_a_look_at_the_epoch_leaves_the_trouble_of_an_append_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, room = asyncio.Event(), asyncio.Event()

    async def sleep(_: float) -> None:
        waits.set()
        await room.wait()

    monkeypatch.setattr(journal, "retry", partial(retry, sleep=sleep))
    store = FullStore()
    found = Journal(cast("Any", store))
    append = asyncio.create_task(found.append([Entry("x", "Kind", b"{}")], [], 1.0))
    await waits.wait()
    trouble = "the journal cannot be written: no space left on its disk"
    assert found.trouble == trouble
    await found.confirm()
    assert found.trouble == trouble
    store.full = False
    room.set()
    await append
    assert found.trouble == ""
