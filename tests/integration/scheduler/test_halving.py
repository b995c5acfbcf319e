"""Tests of successive halving in a real cluster: a promoted job continues from its position, even after the search had ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import ExperimentState, JobState
from hopyard.errors import InvalidInput
from hopyard.policy.vocabulary.reasons import ReasonCode
from hopyard_engine.core.events import Amended, Ended, Event, RunMessage, SnapshotTaken
from hopyard_engine.replay import Until
from hopyard_tools.commands.journal_source import opened
from hopyard_tools.commands.policy_queries import moment
from hopyard_tools.commands.replay import replay
from hopyard_tools.commands.rungs import standing_of
from tests.asha_checker import Bracket, Judge
from tests.integration.scheduler.conftest import experiment
from tests.timing import HANG_SECONDS

ASHA = "policy: {name: asha, eta: 2, brackets: [0]}\ngenerator: {name: random, seed: 11}"


async def positions(client: AsyncClient, name: str) -> dict[str, list[int]]:
    """Return the positions of each job's reports, in the order in which they arrived."""
    return {
        job.id: [statistic.report.position for statistic in await client.statistics(name, job.id)]
        for job in await client.jobs(name)
    }


async def test_promoted_jobs_go_on_and_an_extended_search_wakes_who_waits(
    client: AsyncClient, address: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    created = await client.create(experiment(tmp_path / "e", jobs=6, length=4, more=ASHA))
    ended = await client.wait(created.id, timeout=HANG_SECONDS)
    assert ended.state is ExperimentState.COMPLETED
    before = await positions(client, created.id)
    assert {len(reached) for reached in before.values()} == {1, 2, 4}
    jobs = {job.id: job for job in await client.jobs(created.id)}
    waiting = [jobs[job] for job, reached in before.items() if len(reached) < 4]
    assert {(job.state, job.reason_code) for job in waiting} == {(JobState.TERMINATED, ReasonCode.STOPPED_AT_RUNG)}

    await client.extend(created.id, jobs=6)
    ended = await client.wait(created.id, timeout=HANG_SECONDS)
    assert ended.state is ExperimentState.COMPLETED
    after = await positions(client, created.id)
    assert len(after) == 12
    # With this seed job 6 is the fourth of the first six, whatever the order of the reports, and the fifth of all twelve.
    assert len(before["6"]) == 1
    assert len(after["6"]) > 1
    for reached in after.values():
        assert reached == list(range(1, len(reached) + 1)), "nothing is trained twice"
    capfd.readouterr()
    assert await replay(created.id, None, address, None, False)


def judged(events: Sequence[Event]) -> list[tuple[int, dict[str, float], set[str]]]:
    """Return position, values and promoted jobs of each rung, as an independent checker derives them from the journal."""
    bracket = Bracket((1, 2, 4), eta=2, width=12)
    Judge([bracket], "accuracy").follow(events)
    return [
        (position, values, set(promoted))
        for position, values, promoted in zip(bracket.positions, bracket.values, bracket.promoted, strict=True)
    ]


async def shown(
    name: str, address: str, limit: Until | None
) -> tuple[int, list[tuple[int, dict[str, float], set[str]]]]:
    """Return the number of the event, and the rungs after it, that `hopyard rungs` shows."""
    found = await moment(name, limit, "hopyard rungs", address, None, quiet=True)
    rungs = standing_of(found.driven, found.at)
    assert rungs is not None
    assert found.driven.first is None
    return found.driven.number, [
        (
            rung.position,
            {one.job: one.value for one in rung.standings},
            {one.job for one in rung.standings if one.promoted},
        )
        for rung in rungs
    ]


async def test_a_search_is_looked_at_and_extended_while_it_trains_and_who_is_promoted_at_once_saves_at_the_rung(
    client: AsyncClient, address: str, tmp_path: Path
) -> None:
    more = f"{ASHA}\nsnapshot: {{every: 100}}"
    created = await client.create(experiment(tmp_path / "e", jobs=8, length=4, pace=0.1, more=more))
    live = {}
    extended = False
    while not (extended and (await client.get(created.id)).state.ended):
        number, rungs = await shown(created.id, address, None)
        if rungs:
            live[number] = rungs
        if rungs and rungs[0][1] and not extended:
            await client.extend(created.id, jobs=4)
            extended = True
        await asyncio.sleep(0.05)  # Other processes train.
    async with opened(address, None, created.id, "a test") as source:
        events = [event async for _, event in source.read()]
    assert len(live) > 1
    bottom, *_ = judged(events)
    assert len(bottom[1]) == 12
    for number, rungs in live.items():
        assert rungs == judged(events[:number]), number
    middle = sorted(live)[len(live) // 2]
    assert await shown(created.id, address, Until(event=middle)) == (middle, live[middle])
    # Runs that continued beyond a rung in memory.
    said = [event for event in events if isinstance(event, RunMessage)]
    stayed = {(one.job, one.body.position) for one in said if isinstance(one.body, Amended) and one.body.accepted}
    saved = [(one.job, one.body.snapshot.position) for one in said if isinstance(one.body, SnapshotTaken)]
    assert stayed
    assert stayed <= set(saved)
    ended = sum(isinstance(one.body, Ended) for one in said)
    assert len(saved) == len(set(saved)) == ended + len(stayed), (
        "once for each run, at its end, and at each rung passed in memory"
    )


async def test_terms_that_make_no_rungs_are_refused_when_the_experiment_is_created(
    client: AsyncClient, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match=r"policy asha: brackets is \[0, 3\], but the rungs are at 1, 4: .* is 1"):
        await client.create(experiment(tmp_path / "e", length=4, more="policy: {name: asha, brackets: [0, 3]}"))


async def test_bohb_brings_its_generator(client: AsyncClient, tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="the generator tpe needs the extra hopyard[optuna]")
    created = await client.create(experiment(tmp_path / "e", jobs=6, length=2, more="policy: {name: bohb, eta: 2}"))
    assert (await client.get(created.id)).spec["generator"]["name"] == "tpe"
    assert (await client.wait(created.id, timeout=HANG_SECONDS)).state is ExperimentState.COMPLETED
    states = {job.state for job in await client.jobs(created.id)}
    assert states == {JobState.COMPLETED, JobState.TERMINATED}
