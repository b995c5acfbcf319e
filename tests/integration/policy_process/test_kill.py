"""Tests that a policy whose process is killed repeatedly makes the same decisions as the built-in policy."""

from __future__ import annotations

import math
import os
import random
import signal
import time
from collections.abc import Mapping
from typing import Any

import pytest

from hopyard_engine.core.effects import UpCall
from hopyard_engine.core.events import PolicyAnswered
from hopyard_simulator import Costs, CurveWorkload, Faults
from tests.integration.policy_process.rig import SERVE, Far, Post, searched

KILLS = 10
BANDIT = {"evaluation_boundary": 2, "epsilon": 0.3}
TERMS: Mapping[str, Any] = {
    "slots": 4,
    "parameters": BANDIT,
    "seed": 3,
    "costs": Costs(latency=0.05),
    "faults": Faults(straggling=0.3, drop=0.01, node_failures=0.002, noise=0.01),
}


def workload() -> CurveWorkload:
    """Return a workload of curves of different heights."""
    return CurveWorkload(
        lambda given, position: float(given["x"]) * (1 - math.exp(-position / 5)),
        [{"x": random.Random(number).random()} for number in range(30)],
        12,
        seconds=1.0,
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["command", "own"])
def test_ten_kills_change_nothing(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    wanted, journal = searched(workload(), "bandit", monkeypatch, **TERMS)
    calls = [event.answer.number for event in journal if isinstance(event, PolicyAnswered)]
    assert len(calls) > 60
    assert wanted.jobs_terminated > 3
    rng = random.Random(7)
    struck = set(rng.sample(calls[1:], KILLS))
    killed: list[int] = []
    post = Post()
    own = "hopyard_policies.bandit:BanditPolicy"
    source = post.started(*SERVE, "bandit") if how == "command" else post.own(own)

    def disturb(call: UpCall) -> None:
        if call.number in struck:
            struck.remove(call.number)
            while source.pid is None or source.pid in killed:  # The process has not been started again yet.
                time.sleep(0.001)
            time.sleep(rng.uniform(0.0, 0.003))  # Before, during or after its work.
            killed.append(source.pid)
            os.kill(source.pid, signal.SIGKILL)

    try:
        found, again = searched(
            workload(), "bandit", monkeypatch, lambda _, events: Far(post, source, BANDIT, events, disturb), **TERMS
        )
    finally:
        post.do(source.close())
        post.close()
    assert len(set(killed)) == KILLS
    assert again == journal
    assert found == wanted
