"""Measured scaling profiles in the database."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hopyard.errors import InvalidInput
from hopyard_appstat.database.store import Store
from hopyard_appstat.pagination import Paging
from hopyard_appstat.records import ScalingRecord
from tests.unit.appstat.test_planned import Journal

ONE = ScalingRecord("training", "EPYC", 1, 8.0, "e1", "1", 2.5)
TWO = ScalingRecord("training", "EPYC", 2, 4.4, "e1", "1", 3.5)


async def kept(store: Store, training: str, size: int = 0) -> list[ScalingRecord]:
    found: list[ScalingRecord] = []
    token = ""
    while True:
        page = await store.query_scaling(training, Paging.of(size, token, "scaling", training))
        found += page.items
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
        (replace(ONE, training=""), r"projections\[0\].training: found nothing, allowed is an id"),
        (replace(ONE, hardware=""), r"projections\[0\].hardware: found nothing, allowed is an id"),
        (replace(ONE, machines=0), r"found 8.0 s on 0 machines, allowed are more than 0 s on 1 or more"),
        (replace(ONE, seconds=0.0), r"found 0.0 s on 1 machines"),
        (replace(ONE, seconds=float("nan")), r"found nan s on 1 machines"),
    ],
)
async def test_what_no_profile_can_be_is_refused(store: Store, wrong: ScalingRecord, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        await Journal(store).append(wrong)
    assert await kept(store, "training") == []
