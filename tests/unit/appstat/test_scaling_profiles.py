"""Tests of the measured scaling profiles in the database."""

from __future__ import annotations

from typing import Any

import pytest

from hopyard.errors import InvalidInput
from hopyard.v1.appstat_pb2 import Scaling
from hopyard_appstat.database.store import Store
from hopyard_appstat.pagination import PageRequest
from tests.unit.appstat.messages import all_of
from tests.unit.appstat.test_search_plan import Journal

ONE = Scaling(training="training", hardware="EPYC", slots=1, seconds=8.0, experiment="e1", job="1", at=2.5)
TWO = Scaling(training="training", hardware="EPYC", slots=2, seconds=4.4, experiment="e1", job="1", at=3.5)


def replace(message: Scaling, **fields: Any) -> Scaling:
    changed = Scaling()
    changed.CopyFrom(message)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


async def kept(store: Store, training: str, size: int = 0) -> list[Scaling]:
    found: list[Scaling] = []
    token = ""
    while True:
        page = await store.query_scaling(training, PageRequest.of(size, token, "scaling", training))
        found += all_of(Scaling, page.items)
        token = page.next_token
        if not token:
            return found


@pytest.mark.parametrize("size", [0, 1])
async def test_what_was_measured_last_holds_for_its_training_and_kind_of_host_alone(store: Store, size: int) -> None:
    journal = Journal(store)
    other, slower = replace(TWO, training="another"), replace(ONE, hardware="Xeon", seconds=11.0)
    await journal.append(TWO, other, replace(ONE, seconds=9.0), ONE)
    await journal.append(slower, replace(TWO, seconds=4.5, experiment="e2", at=9.0))
    assert await kept(store, "training", size) == [ONE, replace(TWO, seconds=4.5, experiment="e2", at=9.0), slower]
    assert await kept(store, "another", size) == [other]
    assert await kept(store, "a third", size) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (replace(ONE, training=""), r"projections\[0\]\.scaling\.training: found nothing, allowed is an id"),
        (replace(ONE, hardware=""), r"projections\[0\]\.scaling\.hardware: found nothing, allowed is an id"),
        (replace(ONE, slots=0), r"found 8.0 s on 0 slots, allowed are more than 0 s on 1 or more"),
        (replace(ONE, seconds=0.0), r"found 0.0 s on 1 slots"),
        (replace(ONE, seconds=float("nan")), r"found nan s on 1 slots"),
    ],
)
async def test_what_no_profile_can_be_is_refused(store: Store, wrong: Scaling, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        await Journal(store).append(wrong)
    assert await kept(store, "training") == []
