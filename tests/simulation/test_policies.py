"""Built-in policies under the same faults as the probes, in a few schedules each."""

import pytest

from hopyard_policies.bandit import BanditPolicy
from tests.simulation.probes import PROBES
from tests.simulation.schedule import run


class Bandit(BanditPolicy):
    """Judges often enough to end some of these short jobs."""

    def __init__(self) -> None:
        super().__init__(evaluation_boundary=2, epsilon=0.2)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_bandit_survives_all_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROBES, "bandit", Bandit)
    outcomes = [run("bandit", seed) for seed in range(20)]
    assert [f"{outcome.seed}: {outcome.error}" for outcome in outcomes if outcome.error] == []
