"""Tests of the search plan in the database: nodes, results and snapshots."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from hopyard.errors import InvalidInput, NotFound
from hopyard.v1.appstat_pb2 import PlanNode, PlanReference, PlanSnapshot, PlanStretch, PlanTrial, Statistic
from hopyard_appstat.database.store import Store
from hopyard_appstat.pagination import PageRequest
from tests.unit.appstat import messages
from tests.unit.appstat.messages import all_of, append, record


def stretch(node: str, parent: str, start: int, end: int, values_json: str = "{}") -> PlanStretch:
    return PlanStretch(node=node, parent=parent, start=start, end=end, values_json=values_json)


def trial(experiment: str, job: str, path: Iterable[PlanStretch], snapshots: Iterable[PlanSnapshot] = ()) -> PlanTrial:
    return PlanTrial(experiment=experiment, job=job, root="root", path=path, snapshots=snapshots)


def node(
    key: str, parent: str, start: int, values_json: str, *, references: int, wanted: int, reached: int
) -> PlanNode:
    return PlanNode(
        key=key,
        root="root",
        parent=parent,
        start=start,
        values_json=values_json,
        references=references,
        wanted=wanted,
        reached=reached,
    )


FIRST = trial("e1", "1", (stretch("a", "", 0, 40, '{"lr":1}'), stretch("b", "a", 40, 100, '{"lr":2}')))
SECOND = trial("e2", "7", (stretch("a", "", 0, 60, '{"lr":1}'), stretch("c", "a", 60, 100, '{"lr":3}')))


def report(experiment: str, job: str, position: int, seconds: float = 0.5) -> Statistic:
    return messages.statistic(experiment, job, position, position / 100, seconds=seconds)


def saved(position: int, owner: str = "e1", sha: str = "") -> PlanSnapshot:
    return PlanSnapshot(
        position=position, sha256=sha or f"{position:064x}", size_bytes=9, provider="framework", owner=owner
    )


class Journal:
    """Appends projections to AppStat, each batch with one record of the stream `e1`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._position = 0
        self._epoch = 0

    async def append(self, *rows: messages.Row) -> None:
        if not self._epoch:
            self._epoch = await self._store.begin_epoch("test")
        self._position += 1
        try:
            await self._store.append(append(self._epoch, (record("e1", self._position),), rows))
        except InvalidInput:
            self._position -= 1
            raise


async def snapshots(store: Store, key: str) -> list[PlanSnapshot]:
    return all_of(PlanSnapshot, (await store.plan_node(key)).snapshots)


async def nodes(store: Store, root: str = "root", size: int = 0) -> list[PlanNode]:
    found: list[PlanNode] = []
    token = ""
    while True:
        page = await store.list_plan_nodes(root, PageRequest.of(size, token, "plan", root))
        found += all_of(PlanNode, page.items)
        token = page.next_token
        if not token:
            return found


async def test_nodes_tell_how_far_they_are_wanted_and_reached(store: Store) -> None:
    journal = Journal(store)
    await journal.append(FIRST, SECOND)
    assert await nodes(store) == [
        node("a", "", 0, '{"lr":1}', references=2, wanted=60, reached=0),
        node("b", "a", 40, '{"lr":2}', references=1, wanted=100, reached=40),
        node("c", "a", 60, '{"lr":3}', references=1, wanted=100, reached=60),
    ]
    await journal.append(report("e1", "1", 20, 2.0), report("e1", "1", 40, 4.0), report("e1", "1", 50))
    await journal.append(report("e2", "7", 45, 3.0))
    found = {one.key: (one.reached, one.report_seconds) for one in await nodes(store)}
    assert found == {"a": (45, 3.0), "b": (50, 0.5), "c": (60, 0.0)}
    assert await nodes(store, "another") == []
    assert [one.key for one in await nodes(store, size=1)] == ["a", "b", "c"]


async def test_a_node_has_the_results_of_all_that_pass_through_it(store: Store) -> None:
    journal = Journal(store)
    await journal.append(FIRST, SECOND, *(report("e1", "1", p) for p in (20, 40, 60)))
    await journal.append(*(report("e2", "7", p) for p in (20, 60, 80)))
    page = await store.plan_results("a", PageRequest.of(3, "", "node", "a"))
    assert [(one["position"], one["experiment"], one["job"]) for one in page.items] == [
        (20, "e1", "1"),
        (20, "e2", "7"),
        (40, "e1", "1"),
    ]
    page = await store.plan_results("a", PageRequest.of(3, page.next_token, "node", "a"))
    assert [(one["position"], one["experiment"]) for one in page.items] == [(60, "e2")]
    assert page.next_token == ""
    details = await store.plan_node("a")
    assert all_of(PlanReference, details.references) == [
        PlanReference(experiment="e1", job="1", end=40),
        PlanReference(experiment="e2", job="7", end=60),
    ]
    with pytest.raises(NotFound, match="no node 'x' in the search plan"):
        await store.plan_node("x")


async def test_a_node_has_the_snapshots_that_their_owners_own(store: Store) -> None:
    journal = Journal(store)
    await journal.append(trial("e1", "1", FIRST.path, (saved(40), saved(50))))
    assert await snapshots(store, "a") == []
    await store.own_blobs("e1", {saved(p).sha256: 9 for p in (40, 50)})
    assert await snapshots(store, "a") == [saved(40)]
    assert await snapshots(store, "b") == [saved(50)]
    await store.disown_blobs("e1", (saved(40).sha256,))
    assert await snapshots(store, "a") == []
    # The snapshots of other trials remain.
    await journal.append(trial("e1", "1", FIRST.path, (saved(30),)))
    assert await snapshots(store, "b") == [saved(50)]


async def test_a_longer_way_replaces_the_one_before(store: Store) -> None:
    journal = Journal(store)
    await journal.append(FIRST)
    longer = trial("e1", "1", (FIRST.path[0], stretch("b", "a", 40, 200, '{"lr":2}')))
    await journal.append(FIRST, longer)
    assert [(one.key, one.references, one.wanted) for one in await nodes(store)] == [("a", 1, 40), ("b", 1, 200)]
    await journal.append(trial("e1", "1", FIRST.path[:1]))
    assert [(one.key, one.references) for one in await nodes(store)] == [("a", 1), ("b", 0)]


@pytest.mark.parametrize(
    "path",
    [
        (stretch("a", "", 1, 40),),
        (stretch("a", "", 0, 0),),
        (stretch("", "", 0, 40),),
        (stretch("a", "", 0, 40), stretch("b", "x", 40, 50)),
        (stretch("a", "", 0, 40), stretch("b", "a", 41, 50)),
    ],
)
async def test_a_way_with_gaps_is_refused(store: Store, path: tuple[PlanStretch, ...]) -> None:
    with pytest.raises(InvalidInput, match=r"projections\[0\]\.plan_trial\.path\[\d\]: found node"):
        await Journal(store).append(trial("e1", "1", path))
    assert await nodes(store) == []
