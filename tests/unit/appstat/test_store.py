from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from hopyard._net.rpc.values import hyperparameters_to_proto
from hopyard.errors import Aborted, Conflict, Exhausted, InvalidInput, StaleEpoch, Unavailable
from hopyard.v1 import appstat_pb2 as pb
from hopyard.v1.experiment_pb2 import EXPERIMENT_STATE_COMPLETED, EXPERIMENT_STATE_RUNNING, Experiment, Job
from hopyard_appstat.database.store import Store
from hopyard_appstat.database.transaction import Transaction
from hopyard_appstat.pagination import PageRequest
from hopyard_appstat.projections import Append
from hopyard_appstat.rows import statistic_of
from tests.unit.appstat import messages
from tests.unit.appstat.messages import Row, all_of, append, experiment, job, record, stored


def records(stream: str, first: int, count: int = 1, text: str = "x") -> tuple[pb.JournalRecord, ...]:
    return tuple(
        record(stream, position, payload=f"{text}{position}".encode()) for position in range(first, first + count)
    )


def statistic(job: str, position: int, value: float = 0.0, **more: Any) -> pb.Statistic:
    return messages.statistic("e1", job, position, value, **more)


async def journal(store: Store, stream: str, first: int = 1) -> list[pb.JournalRecord]:
    """Return the records of a stream without their checksums."""
    found = all_of(pb.JournalRecord, [row async for part in store.read_journal(stream, first) for row in part])
    for one in found:
        assert len(one.checksum) == 32
        one.ClearField("checksum")
    return found


async def curves(store: Store, experiment: str = "e1", job: str = "") -> list[pb.Statistic]:
    paging = PageRequest.of(0, "", "all")
    return [statistic_of(row) for row in (await store.query_statistics(experiment, job, paging)).items]


async def test_what_is_appended_is_read_in_order(store: Store) -> None:
    epoch = await store.begin_epoch("test")
    await store.append(append(epoch, records("cluster", 1, 3) + records("e1", 1, 2)))
    await store.append(append(epoch, records("cluster", 4)))
    assert await journal(store, "cluster") == list(records("cluster", 1, 4))
    assert await journal(store, "cluster", 3) == list(records("cluster", 3, 2))
    assert await journal(store, "e1") == list(records("e1", 1, 2))
    assert await journal(store, "unknown") == []
    page = await store.list_streams(PageRequest.of(0, "", "streams"))
    assert page.items == ({"stream": "cluster", "length": 4}, {"stream": "e1", "length": 2})


async def test_large_payloads_are_read_in_parts(store: Store) -> None:
    epoch = await store.begin_epoch("test")
    large = tuple(record("e1", position, payload=bytes(700_000)) for position in range(1, 6))
    await store.append(append(epoch, large))
    parts = [len(part) async for part in store.read_journal("e1")]
    assert parts == [1, 1, 1, 1, 1]


async def test_an_older_epoch_is_fenced_off(store: Store) -> None:
    first = await store.begin_epoch("first")
    await store.append(append(first, records("cluster", 1)))
    second = await store.begin_epoch("second")
    assert second > first
    with pytest.raises(StaleEpoch, match=f"epoch {first} is over: epoch {second} \\(of 'second'\\) is the newest"):
        await store.append(append(first, records("cluster", 2)))
    with pytest.raises(StaleEpoch):  # also for a record that exists already
        await store.append(append(first, records("cluster", 1)))
    with pytest.raises(Conflict, match="was never begun"):
        await store.append(append(second + 1, records("cluster", 2)))
    await store.append(append(second, records("cluster", 2)))
    assert len(await journal(store, "cluster")) == 2


async def test_an_append_before_any_epoch_is_refused(store: Store) -> None:
    for epoch in (0, 1):
        with pytest.raises(Conflict, match="was never begun"):
            await store.append(append(epoch, records("cluster", 1)))


async def test_the_same_append_again_changes_nothing(store: Store) -> None:
    epoch = await store.begin_epoch("test")
    first = append(epoch, records("e1", 1, 2), (experiment("e1"),))
    await store.append(first)
    await store.append(append(epoch, records("e1", 3), (experiment("e1", "COMPLETED"),)))
    await store.append(first)
    assert len(await journal(store, "e1")) == 3
    page = await store.query_experiments(0, PageRequest.of(0, "", "x"))
    # The repeated append does not restore the old row.
    assert [one.state for one in stored(Experiment, page.items)] == [EXPERIMENT_STATE_COMPLETED]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (records("e1", 4), "stands at 2, so the next position is 3; the batch begins at 4"),
        (records("new", 2), "stands at 0, so the next position is 1"),
        (records("e1", 2, 1, text="other"), "another record at position 2"),
        (records("e1", 2, 2), "positions 2 to 3, and a part of it is there already"),
        (records("e1", 2) + records("new", 1), "stream 'new' stands at 0; the batch has positions 1 to 1"),
        (records("e1", 3) + records("new", 5), "stream 'new' stands at 0"),
    ],
)
async def test_a_wrong_position_is_aborted_and_writes_nothing(
    store: Store, batch: tuple[pb.JournalRecord, ...], message: str
) -> None:
    epoch = await store.begin_epoch("test")
    await store.append(append(epoch, records("e1", 1, 2)))
    with pytest.raises(Aborted, match=message):
        await store.append(append(epoch, batch, (statistic("j1", 1),)))
    assert await journal(store, "e1") == list(records("e1", 1, 2))
    assert await journal(store, "new") == []
    assert await curves(store) == []


@pytest.mark.parametrize(
    ("batch", "projections", "message"),
    [
        (records("", 1), (), r"records\[0\]\.stream: found nothing"),
        (records("e1", 0), (), r"records\[0\]\.position: found 0, allowed is 1"),
        (records("e1", 1) + records("e1", 3), (), r"records\[1\]\.position: found 3, allowed is 2"),
        (records("e1", 1) + records("e1", 1), (), r"records\[1\]\.position: found 1, allowed is 2"),
        ((record("e1", 1, float("nan")),), (), r"records\[0\]\.at: found nan"),
        ((record("e1", 1, payload=bytes(2**24 + 1)),), (), r"records\[0\]\.payload: found 16777217 bytes"),
        ((), (experiment(""),), r"projections\[0\]\.experiment\.id: found nothing"),
        ((), (job("e1", ""),), r"projections\[0\]\.job\.id: found nothing"),
        ((), (job("", "1"),), r"projections\[0\]\.job\.experiment: found nothing"),
        ((), (job("e1", "1"), statistic("", 1)), r"projections\[1\]\.statistic\.job: found nothing"),
        ((), (experiment("e", ended_at=float("nan")),), r"projections\[0\]\.experiment\.ended_at: found nan"),
        ((), (statistic("j", 1, at=float("inf")),), r"projections\[0\]\.statistic\.report\.at: found inf"),
        ((), (statistic("j", -1),), r"projections\[0\]\.statistic\.report\.position: found -1, allowed is 0"),
        ((), (statistic("j", 1, seconds=float("inf")),), r"projections\[0\]\.statistic\.report\.seconds: found inf"),
    ],
)
async def test_what_is_out_of_range_is_refused(
    store: Store, batch: tuple[pb.JournalRecord, ...], projections: Any, message: str
) -> None:
    epoch = await store.begin_epoch("test")
    with pytest.raises(InvalidInput, match=message):
        await store.append(append(epoch, batch, projections))


async def gather(appends: Iterable[Any]) -> list[Any]:
    return await asyncio.gather(*appends, return_exceptions=True)


async def test_appends_that_wait_together_are_committed_together(store: Store) -> None:
    epoch = await store.begin_epoch("test")
    before = store.commits
    results = await gather(store.append(append(epoch, records(f"e{number}", 1))) for number in range(200))
    assert results == [None] * 200
    assert store.commits - before < 10
    page = await store.list_streams(PageRequest.of(0, "", "streams"))
    assert len(page.items) == 200


async def test_a_chain_of_appends_to_one_stream_may_be_one_group(store: Store) -> None:
    epoch = await store.begin_epoch("test")
    before = store.commits
    assert await gather(store.append(append(epoch, records("e1", n))) for n in range(1, 101)) == [None] * 100
    assert store.commits - before < 10
    assert await journal(store, "e1") == list(records("e1", 1, 100))


async def test_a_refused_append_leaves_its_neighbours_alone(store: Store) -> None:
    epoch = await store.begin_epoch("test")
    good, bad, after = records("e1", 1), records("e1", 7), records("e1", 2)
    results = await gather(store.append(append(epoch, batch)) for batch in (good, bad, after))
    assert results[0] is None
    assert isinstance(results[1], Aborted)
    assert results[2] is None


async def test_an_operation_that_the_database_refuses_leaves_its_neighbours_alone(store: Store) -> None:
    epoch = await store.begin_epoch("test")
    results = await gather(
        (
            store.append(append(epoch, records("e1", 1))),
            store.own_blobs("owner", {"0" * 64: 2**70}),  # not a 64-bit integer
            store.append(append(epoch, records("e3", 1))),
        )
    )
    assert results[0] is None
    assert isinstance(results[1], InvalidInput)
    assert results[2] is None
    assert len(await journal(store, "e3")) == 1
    assert await store.known_blobs(("0" * 64,)) == set()


async def test_an_epoch_begun_in_the_same_group_fences_what_follows(store: Store) -> None:
    first = await store.begin_epoch("first")
    results = await gather(
        [
            store.append(append(first, records("e1", 1))),
            store.begin_epoch("second"),
            store.append(append(first, records("e1", 2))),
        ]
    )
    assert results[:2] == [None, first + 1]
    assert isinstance(results[2], StaleEpoch)


@pytest.mark.parametrize(
    ("text", "kind"), [("database or disk is full", Exhausted), ("database is locked", Unavailable)]
)
async def test_trouble_of_the_database_is_told_and_passes(
    store: Store, monkeypatch: pytest.MonkeyPatch, text: str, kind: type[Exception]
) -> None:
    epoch = await store.begin_epoch("test")

    def trouble(*_: object) -> None:
        raise OperationalError("insert", {}, Exception(text))

    monkeypatch.setattr(Transaction, "_write_records", trouble)
    with pytest.raises(kind, match=text):
        await store.append(append(epoch, records("e1", 1)))
    monkeypatch.undo()
    await store.append(append(epoch, records("e1", 1)))


async def test_the_first_statistic_of_a_key_is_kept_and_the_last_row_of_the_others(store: Store) -> None:
    epoch = await store.begin_epoch("test")
    first = statistic("j1", 1, 0.1)
    first.report.in_force.CopyFrom(hyperparameters_to_proto({"lr": 0.5, "n": 1}))
    last = job("e1", "j1", state="SUSPENDED")
    rows = (
        experiment("e1", created_at=5.0),
        job("e1", "j1"),
        first,
        statistic("j1", 1, 0.9, attempt=2),
        statistic("j1", 1, float("nan"), part="p1"),
        last,
    )
    await store.append(append(epoch, records("e1", 1), rows))
    await store.append(append(epoch, records("e1", 2), (statistic("j1", 1, 0.7, attempt=3), statistic("j0", 4, 0.2))))
    found = await curves(store)
    assert [(s.job, s.report.position, s.report.part, s.attempt) for s in found] == [
        ("j0", 4, "", 1),
        ("j1", 1, "", 1),
        ("j1", 1, "p1", 1),
    ]
    assert found[1] == first
    assert found[2].report.metrics["acc"] != found[2].report.metrics["acc"]
    assert await curves(store, job="j0") == [statistic("j0", 4, 0.2)]
    page = await store.query_jobs("e1", PageRequest.of(0, "", "x"))
    assert stored(Job, page.items) == [last]


async def test_the_row_of_a_deleted_job_is_deleted(store: Store) -> None:
    epoch = await store.begin_epoch("test")

    async def rows(*projected: Row) -> list[str]:
        await store.append(append(epoch, (), projected))
        page = await store.query_jobs("e1", PageRequest.of(0, "", "x"))
        return [one.id for one in stored(Job, page.items)]

    one, gone = job("e1", "1", 1), pb.DeletedJob(experiment="e1", id="1")
    assert await rows(one, job("e1", "2", 2), gone, pb.DeletedJob(experiment="e1", id="unknown")) == ["2"]
    assert await rows(gone, one) == ["1", "2"]
    assert await rows(pb.DeletedJob(experiment="e2", id="1"), gone) == ["2"]


async def test_lists_are_ordered_and_paged(store: Store) -> None:
    epoch = await store.begin_epoch("test")
    experiments = tuple(experiment(f"e{n}", "RUNNING" if n % 2 else "COMPLETED", float(n // 2)) for n in range(6))
    jobs = tuple(job("e1", f"j{n}", 100 - n, "PENDING") for n in range(5))
    statistics = tuple(statistic(f"j{n % 2}", n) for n in range(7))
    await store.append(append(epoch, (), experiments + jobs + statistics))

    async def pages(ask: Any) -> list[Any]:
        items: list[Any] = []
        token = ""
        while True:
            page = await ask(PageRequest.of(2, token, "q"))
            assert len(page.items) <= 2
            items += page.items
            token = page.next_token
            if not token:
                return items

    by_age = await pages(lambda paging: store.query_experiments(0, paging))
    assert [row["id"] for row in by_age] == ["e5", "e4", "e3", "e2", "e1", "e0"]
    running = await pages(lambda paging: store.query_experiments(EXPERIMENT_STATE_RUNNING, paging))
    assert [row["id"] for row in running] == ["e5", "e3", "e1"]
    by_ordinal = await pages(lambda paging: store.query_jobs("e1", paging))
    assert [row["ordinal"] for row in by_ordinal] == [96, 97, 98, 99, 100]
    by_job = await pages(lambda paging: store.query_statistics("e1", "", paging))
    assert [(row["job"], row["position"]) for row in by_job] == [
        ("j0", 0),
        ("j0", 2),
        ("j0", 4),
        ("j0", 6),
        ("j1", 1),
        ("j1", 3),
        ("j1", 5),
    ]


async def test_a_watch_brings_every_commit_once_in_order(store: Store) -> None:
    epoch = await store.begin_epoch("test")
    await store.append(append(epoch, (), (statistic("j1", 1), statistic("j2", 1))))
    present = store.watch_statistics("e1", "", replay=False)
    replayed = store.watch_statistics("e1", "j1", replay=True)
    assert await anext(present) == ()
    assert await anext(replayed) == ()
    assert list(map(statistic_of, await anext(replayed))) == [statistic("j1", 1)]
    waiting = asyncio.ensure_future(anext(present))
    await store.append(append(epoch, (), (messages.statistic("other", "j1", 9),)))
    await store.append(append(epoch, (), (statistic("j2", 2),)))
    assert list(map(statistic_of, await waiting)) == [statistic("j2", 2)]
    wanted = list(range(100, 2000))
    for first in range(100, 2000, 100):
        await store.append(append(epoch, (), tuple(statistic("j1", p) for p in range(first, first + 100))))
    for watch in (present, replayed):
        seen: list[int] = []
        while len(seen) < len(wanted):
            batch = await anext(watch)
            assert 0 < len(batch) <= 500
            seen += [row["position"] for row in batch]
        assert seen == wanted
    await replayed.aclose()
    await present.aclose()


async def test_a_stop_ends_watches_and_refuses_writes(store: Store) -> None:
    epoch = await store.begin_epoch("test")
    watch = store.watch_statistics("e1", "", replay=False)
    await anext(watch)
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    last = asyncio.ensure_future(store.append(append(epoch, records("e1", 1))))
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises(Unavailable, match="watch again"):
        await waiting
    await last  # it was in the queue before the stop, so it is committed
    with pytest.raises(Unavailable, match="stopping"):
        await store.append(append(epoch, records("e1", 2)))


# ---------------------------------------------------------------------------------------------------------------- import


async def imported(store: Store, *parts: Append) -> None:
    await store.import_journal(lambda: iter(parts))


async def test_an_import_is_there_with_its_projections(store: Store) -> None:
    epoch = await store.begin_epoch("test")
    row = experiment("e1", "PAUSED", 3.0)
    await imported(
        store,
        append(epoch, records("e1", 1, 3), (statistic("1", 1),)),
        append(epoch, records("e1", 4, 2), (statistic("1", 2), job("e1", "1", state="SUSPENDED"), row)),
    )
    assert await journal(store, "e1") == list(records("e1", 1, 5))
    assert [s.report.position for s in await curves(store)] == [1, 2]
    page = await store.query_experiments(0, PageRequest.of(0, "", "x"))
    assert stored(Experiment, page.items) == [row]
    await store.append(append(epoch, records("e1", 6)))


async def test_an_import_again_changes_nothing(store: Store) -> None:
    epoch = await store.begin_epoch("test")
    parts = (append(epoch, records("e1", 1, 3), (statistic("1", 1, 0.5),)), append(epoch, records("e1", 4)))
    await imported(store, *parts)
    await store.append(append(epoch, records("e1", 5), (experiment("e1"),)))
    await imported(store, *parts)
    assert len(await journal(store, "e1")) == 5
    assert len(await curves(store)) == 1


async def test_a_refused_import_leaves_nothing(store: Store) -> None:
    epoch = await store.begin_epoch("test")
    good = append(epoch, records("e1", 1, 3), (statistic("1", 1),))
    with pytest.raises(InvalidInput, match="'e1': found position 5, allowed is 4"):
        await imported(store, good, append(epoch, records("e1", 5)))
    with pytest.raises(InvalidInput, match="'e1': found position 2, allowed is 1"):
        await imported(store, append(epoch, records("e1", 2)))
    with pytest.raises(InvalidInput, match=r"projections\[0\]\.experiment\.id"):
        await imported(store, good, append(epoch, (), (experiment("", "PAUSED"),)))
    with pytest.raises(Conflict, match="was never begun"):
        await imported(store, good, append(epoch + 1, records("e1", 4)))
    assert await journal(store, "e1") == []
    assert await curves(store) == []
    await store.append(append(epoch, records("e1", 1)))


async def test_an_import_over_another_stream_is_refused(store: Store) -> None:
    epoch = await store.begin_epoch("test")
    await store.append(append(epoch, records("e1", 1, 2)))
    with pytest.raises(Aborted, match="another record at position 1"):
        await imported(store, append(epoch, records("e1", 1, 2, text="y")))
    with pytest.raises(Aborted, match="stands at 2"):
        await imported(store, append(epoch, records("e1", 1, 3)))
    assert await journal(store, "e1") == list(records("e1", 1, 2))


async def test_an_import_of_an_older_epoch_is_fenced_off(store: Store) -> None:
    first = await store.begin_epoch("first")
    await store.begin_epoch("second")
    with pytest.raises(StaleEpoch):
        await imported(store, append(first, records("e1", 1)))
    assert await journal(store, "e1") == []
