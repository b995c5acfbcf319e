"""The search plan in the database."""

from __future__ import annotations

import pytest

from hopyard.errors import InvalidInput, NotFound
from hopyard.policy.vocabulary import Report
from hopyard_appstat.database.store import Store
from hopyard_appstat.pagination import Paging
from hopyard_appstat.records import (
    Append,
    JournalRecord,
    PlanNode,
    PlanSnapshot,
    PlanTrial,
    Projection,
    StatisticRecord,
    StretchRecord,
)

FIRST = PlanTrial(
    "e1", "1", "root", (StretchRecord("a", "", 0, 40, '{"lr":1}'), StretchRecord("b", "a", 40, 100, '{"lr":2}'))
)
SECOND = PlanTrial(
    "e2", "7", "root", (StretchRecord("a", "", 0, 60, '{"lr":1}'), StretchRecord("c", "a", 60, 100, '{"lr":3}'))
)


def report(experiment: str, job: str, position: int, seconds: float = 0.5) -> StatisticRecord:
    return StatisticRecord(experiment, job, 1, Report(position, {"acc": position / 100}, seconds), 2.5)


def saved(position: int, owner: str = "e1", sha: str = "") -> PlanSnapshot:
    return PlanSnapshot(position, sha or f"{position:064x}", 9, "framework", owner)


class Journal:
    """Appends projections, each batch with a record."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._position = 0
        self._epoch = 0

    async def append(self, *projections: Projection) -> None:
        if not self._epoch:
            self._epoch = await self._store.begin_epoch("test")
        self._position += 1
        record = JournalRecord("e1", self._position, 1.0, "Kind", b"")
        try:
            await self._store.append(Append(self._epoch, (record,), projections))
        except InvalidInput:
            self._position -= 1
            raise


async def nodes(store: Store, root: str = "root", size: int = 0) -> list[PlanNode]:
    found: list[PlanNode] = []
    token = ""
    while True:
        page = await store.list_plan_nodes(root, Paging.of(size, token, "plan", root))
        found += page.items
        token = page.next_token
        if not token:
            return found


async def test_nodes_tell_how_far_they_are_wanted_and_reached(store: Store) -> None:
    journal = Journal(store)
    await journal.append(FIRST, SECOND)
    assert await nodes(store) == [
        PlanNode("a", "root", "", 0, '{"lr":1}', references=2, wanted=60, reached=0),
        PlanNode("b", "root", "a", 40, '{"lr":2}', references=1, wanted=100, reached=40),
        PlanNode("c", "root", "a", 60, '{"lr":3}', references=1, wanted=100, reached=60),
    ]
    await journal.append(report("e1", "1", 20, 2.0), report("e1", "1", 40, 4.0), report("e1", "1", 50))
    await journal.append(report("e2", "7", 45, 3.0))
    found = {node.key: (node.reached, node.report_seconds) for node in await nodes(store)}
    assert found == {"a": (45, 3.0), "b": (50, 0.5), "c": (60, 0.0)}
    assert await nodes(store, "another") == []
    assert [node.key for node in await nodes(store, size=1)] == ["a", "b", "c"]


async def test_a_node_has_the_results_of_all_that_pass_through_it(store: Store) -> None:
    journal = Journal(store)
    await journal.append(FIRST, SECOND, *(report("e1", "1", p) for p in (20, 40, 60)))
    await journal.append(*(report("e2", "7", p) for p in (20, 60, 80)))
    page = await store.plan_results("a", Paging.of(3, "", "node", "a"))
    assert [(one.report.position, one.experiment, one.job) for one in page.items] == [
        (20, "e1", "1"),
        (20, "e2", "7"),
        (40, "e1", "1"),
    ]
    page = await store.plan_results("a", Paging.of(3, page.next_token, "node", "a"))
    assert [(one.report.position, one.experiment) for one in page.items] == [(60, "e2")]
    assert page.next_token == ""
    details = await store.plan_node("a")
    assert details.references == (("e1", "1", 40), ("e2", "7", 60))
    with pytest.raises(NotFound, match="no node 'x' in the search plan"):
        await store.plan_node("x")


async def test_a_node_has_the_snapshots_that_their_owners_own(store: Store) -> None:
    journal = Journal(store)
    await journal.append(PlanTrial("e1", "1", "root", FIRST.path, (saved(40), saved(50))))
    assert (await store.plan_node("a")).snapshots == ()
    await store.own_blobs("e1", {saved(p).sha256: 9 for p in (40, 50)})
    assert (await store.plan_node("a")).snapshots == (saved(40),)
    assert (await store.plan_node("b")).snapshots == (saved(50),)
    await store.disown_blobs("e1", (saved(40).sha256,))
    assert (await store.plan_node("a")).snapshots == ()
    await journal.append(PlanTrial("e1", "1", "root", FIRST.path, (saved(30),)))  # The others stay.
    assert (await store.plan_node("b")).snapshots == (saved(50),)


async def test_a_longer_way_replaces_the_one_before(store: Store) -> None:
    journal = Journal(store)
    await journal.append(FIRST)
    longer = PlanTrial("e1", "1", "root", (FIRST.path[0], StretchRecord("b", "a", 40, 200, '{"lr":2}')))
    await journal.append(FIRST, longer)
    assert [(node.key, node.references, node.wanted) for node in await nodes(store)] == [("a", 1, 40), ("b", 1, 200)]
    await journal.append(PlanTrial("e1", "1", "root", FIRST.path[:1]))
    assert [(node.key, node.references) for node in await nodes(store)] == [("a", 1), ("b", 0)]


@pytest.mark.parametrize(
    "path",
    [
        (StretchRecord("a", "", 1, 40),),
        (StretchRecord("a", "", 0, 0),),
        (StretchRecord("", "", 0, 40),),
        (StretchRecord("a", "", 0, 40), StretchRecord("b", "x", 40, 50)),
        (StretchRecord("a", "", 0, 40), StretchRecord("b", "a", 41, 50)),
    ],
)
async def test_a_way_with_gaps_is_refused(store: Store, path: tuple[StretchRecord, ...]) -> None:
    with pytest.raises(InvalidInput, match=r"projections\[0\]\.path\[\d\]: found node"):
        await Journal(store).append(PlanTrial("e1", "1", "root", path))
    assert await nodes(store) == []
