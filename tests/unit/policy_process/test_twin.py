"""Test that a policy has the same view and gives the same answers over the wire and in the scheduler's process, also under faults."""

from __future__ import annotations

import pytest

from hopyard.policy import Policy
from tests.simulation import scheduler
from tests.simulation.probes import PROBES
from tests.simulation.schedule import run
from tests.unit.policy_process.twin import Mirrored


@pytest.mark.parametrize("probe", sorted(PROBES))
def test_both_sides_see_and_say_the_same_under_faults(probe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def mirrored(policy: Policy) -> Mirrored:
        return Mirrored(type(policy))

    monkeypatch.setattr(scheduler, "PolicyHost", mirrored)
    before = Mirrored.calls
    outcomes = [run(probe, seed, 150) for seed in range(4)]
    assert [f"{outcome.seed}: {outcome.error}" for outcome in outcomes if outcome.error] == []
    assert Mirrored.calls > before
