"""Test of `asha` while the scheduler is killed twice: promotions follow Algorithm 2, and no training is lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hopyard.client import Client
from hopyard.client.types import Experiment, ExperimentState
from hopyard_engine.core.events import Event
from hopyard_tools.commands.journal_source import opened
from tests.asha_checker import Bracket, Judge, Violation
from tests.e2e import kills
from tests.e2e.harness import all_trained_alone, softmax_file
from tests.e2e.up import IS_UP, Up
from tests.timing import HANG_SECONDS

pytestmark = pytest.mark.nightly

JOBS = 45
ETA = 3
RUNGS = (1, 3, 9, 27)
KILLED_AT = (20, 70)
"""Positions trained by all jobs together at which the scheduler is killed."""

HELD = 40
"""This job and later ones train nothing before the last kill. The 39 others train 39 + 13 * 2 + 4 * 6 + 18 = 107 positions."""


def run(up: Up, client: Client, file: Path, enough: Path) -> Experiment:
    """Run the experiment to its end and kill the scheduler on the way."""
    experiment = client.create(file)
    progress = kills.progress_of(client, experiment)
    for moment in KILLED_AT:
        while progress() < moment:
            assert not client.get(experiment.id).state.ended, "it was over before the last kill"
            time.sleep(0.05)
        pid = up.wait_serving("scheduler")
        up.pids.pop("scheduler")
        os.kill(pid, signal.SIGKILL)
        assert up.wait_serving("scheduler") != pid
    enough.touch()
    return client.wait(experiment.id, timeout=2 * HANG_SECONDS)


def carried_out(data: Path) -> list[kills.Command]:
    """Return the commands that the agents of both nodes have carried out so far."""
    return [command for node in ("node1", "node2") for command in kills.carried_out(data, node)]


async def journal(server: str, experiment: Experiment) -> list[Event]:
    """Return the experiment's events."""
    async with opened(server, None, experiment.id, "a test") as source:
        return [event async for _, event in source.read()]


def judged(events: list[Event]) -> tuple[Judge, Bracket]:
    """Check the journal; return the checker, and the bracket after these events."""
    bracket = Bracket(RUNGS, ETA, width=JOBS)
    judge = Judge([bracket], "accuracy")
    judge.follow(events)
    return judge, bracket


def shown(server: str, experiment: Experiment, *options: str) -> list[dict[str, Any]]:
    """Return the rungs that `hopyard rungs` shows, in the form of `known`."""
    document = json.loads(kills.command("rungs", experiment.id, "--server", server, "--json", *options))
    assert document["decisions_equal"] is True
    return [
        {
            "position": rung["position"],
            "values": {one["job"]: one["value"] for one in rung["standings"]},
            "promoted": {one["job"] for one in rung["standings"] if one["promoted"]},
        }
        for rung in document["rungs"]
    ]


def known(bracket: Bracket) -> list[dict[str, Any]]:
    """Return the rungs that the checker derives."""
    return [
        {"position": position, "values": values, "promoted": set(promoted)}
        for position, values, promoted in zip(bracket.positions, bracket.values, bracket.promoted, strict=True)
    ]


@pytest.mark.timeout(400)
async def test_each_promotion_is_algorithm_2_s_and_costs_no_training(tmp_path: Path) -> None:
    policy = {"name": "asha", "eta": ETA, "r": RUNGS[0], "brackets": [0]}
    file = softmax_file(tmp_path / "e", policy=policy, stop={"jobs": JOBS, "max_iterations": RUNGS[-1]})
    data = tmp_path / "data"
    enough = tmp_path / "enough"
    paced = {"SOFTMAX_PACE": "0.05", "SOFTMAX_ENOUGH": str(enough), "SOFTMAX_HELD": f"{HELD}:0"}
    up = Up(data, slots=2, **paced)
    try:
        up.wait_for(IS_UP)
        server = up.server
        with Client(server=server, patience=HANG_SECONDS) as client:
            experiment = run(up, client, file, enough)
            assert experiment.state is ExperimentState.COMPLETED
            jobs, curves = client.jobs(experiment.id), kills.curves(client, experiment)
        # Agents carried out exactly the commands of the journal, once each.
        end = time.monotonic() + HANG_SECONDS
        while (sent := await kills.sent(server, experiment)) - set(done := carried_out(data)):
            assert time.monotonic() < end, sent - set(done)  # An agent may not have carried out the last command yet.
            await asyncio.sleep(0.1)
        assert [command for command, times in Counter(done).items() if times > 1] == []
        assert set(done) == sent
        assert kills.replayed(server, experiment)["decisions_equal"] is True
        # Each promotion is the one that Algorithm 2 makes, and `hopyard rungs` shows the same at any event.
        events = await journal(server, experiment)
        judge, bracket = judged(events)
        assert (len(judge.found.grown), judge.found.left) == (JOBS, [])
        assert shown(server, experiment) == known(bracket)
        half = len(events) // 2
        assert shown(server, experiment, "--at", str(half)) == known(judged(events[:half])[1])
    finally:
        if up.process.poll() is None:
            up.stop()
    with pytest.raises(Violation):
        Judge([Bracket(RUNGS, ETA + 1)], "accuracy").follow(events)
    # Promoted jobs have the same curves as without interruption.
    promoted = {job for job, _ in judge.found.promotions}
    alone = all_trained_alone(file.parent, [job.hyperparameters for job in jobs], RUNGS[-1], "Softmax")
    for job, curve in zip(jobs, alone, strict=True):
        assert curves[job.id] == {p: curve[p] for p in curves[job.id]}, job.id
    assert {len(curves[job]) for job in promoted} == set(RUNGS[1:])
    assert {len(curves[job.id]) for job in jobs if job.id not in promoted} == {RUNGS[0]}
