"""A stream disappears with all its rows in one transaction, and its blobs so that an interruption leaves none behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hopyard.errors import Aborted, Unavailable
from hopyard.v1 import appstat_pb2 as pb
from hopyard_appstat.blobs.store import BlobStore
from hopyard_appstat.database.blob_ownership import OwnedBlobs
from hopyard_appstat.database.store import Store
from hopyard_appstat.pagination import PageRequest
from tests.unit.appstat.messages import Row, append, experiment, job, record, statistic
from tests.unit.appstat.test_blob_ownership import blobs, clock, index, owned, put

__all__ = ["blobs", "clock", "index", "owned"]

FIRST = PageRequest.of(10, "", "page")


async def filled(store: Store) -> int:
    epoch = await store.begin_epoch("me")
    for name in ("e1", "e2"):
        rows: list[Row] = [experiment(name), job(name, "1"), statistic(name, "1", 1)]
        await store.append(append(epoch, [record(name, 1), record(name, 2)], rows))
    return epoch


async def contents(store: Store, name: str) -> tuple[int, int, int, list[str]]:
    found = await store.query_statistics(name, "", FIRST)
    jobs, streams = await store.query_jobs(name, FIRST), await store.list_streams(FIRST)
    experiments = await store.query_experiments(0, FIRST)
    here = sum(row["id"] == name for row in experiments.items)
    return here, len(jobs.items), len(found.items), [row["stream"] for row in streams.items]


async def test_a_stream_disappears_with_its_event(store: Store) -> None:
    epoch = await filled(store)
    deletion = replace(append(epoch, [record("cluster", 1)]), deleted=(("e1", ("e1",)),))
    await store.append(deletion)
    assert await contents(store, "e1") == (0, 0, 0, ["cluster", "e2"])
    assert (await contents(store, "e2"))[:3] == (1, 1, 1)
    await store.append(deletion)  # A repeated call, whose first response was lost.
    await store.append(append(epoch, [record("e1", 1)], [experiment("e1")]))
    assert await contents(store, "e1") == (1, 0, 0, ["cluster", "e1", "e2"])


async def test_a_refused_batch_deletes_nothing(store: Store) -> None:
    epoch = await filled(store)
    with pytest.raises(Aborted):
        await store.append(replace(append(epoch, [record("cluster", 7)]), deleted=(("e1", ("e1",)),)))
    assert await contents(store, "e1") == (1, 1, 1, ["e1", "e2"])


async def test_an_interrupted_release_can_be_repeated(
    index: Store, owned: OwnedBlobs, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, shared = await put(owned, b"mine", "e1"), await put(owned, b"shared", "e1")
    await put(owned, b"shared", "e2")

    async def away(*arguments: object) -> tuple[str, ...]:
        raise Unavailable("the database is away")

    with monkeypatch.context() as patched:
        patched.setattr(Store, "disown_blobs", away)
        with pytest.raises(Unavailable):
            await owned.release("e1")
    assert await blobs.size(mine) is None
    assert await index.known_blobs((mine, shared)) == {mine, shared}  # The index still knows what to delete.
    gone = await owned.release("e1")
    assert (gone.own, gone.own_bytes, gone.shared, gone.shared_bytes) == (1, 4, 1, 6)
    assert await index.known_blobs((mine, shared)) == {shared}
    assert await blobs.size(shared) == 6


def test_a_deletion_is_part_of_the_request() -> None:
    from hopyard_appstat.projections import append_of

    request = pb.AppendJournalRequest(epoch=1, deleted=[pb.DeletedStream(stream="e1", experiments=["e1", "e2"])])
    assert append_of(request).deleted == (("e1", ("e1", "e2")),)
