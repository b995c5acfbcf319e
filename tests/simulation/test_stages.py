"""Tests that a stage tree repeats only training that was lost, or passed unsaved before its use was known."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile

import pytest

from hopyard_engine.core.events import Operated, Requested
from hopyard_engine.core.types import Settings
from tests.simulation import training
from tests.simulation.faults import Rates
from tests.simulation.schedule import MAX_POSITION, Schedule

SAVE_EVERY = 2
State = tuple[str, int]
"""(stream, state): a state that runs of an experiment or a group reached."""


class Counting(Schedule):
    """A schedule that counts all training while runners and schedulers crash, messages are lost and clients send requests.

    Nodes lose no snapshots and no person interferes. With `together`, others join the first experiment, and some are stopped.
    """

    def __init__(self, seed: int, events: int = 200, *, together: bool = False) -> None:
        self.requests = self.stopped = 0
        self._chance = random.Random(f"requests {seed}")
        self._together = together
        super().__init__("stages", seed, events)
        if together:
            self.world.later(self._chance.uniform(1.0, 8.0), self._create)
            self.world.later(self._chance.uniform(6.0, 25.0), self._stop_one)

    def tempered(self, rates: Rates) -> Rates:
        """Keep only faults that lose no more than the unsaved states of a runner."""
        kept = {
            "user_failure": 0.0,
            "partition": 0.0,
            "node_death": 0.0,
            "agent_restart": 0.0,
            "person": 0.0,
            "not_stored": 0.0,
            "drain": 0.0,
            "too_long": 0.0,
        }
        return replace(rates, crash=max(rates.crash, 0.1), **kept)

    def adapted(self, settings: Settings) -> Settings:
        """Let experiments train everything without evictions; some remain open for requests for a while."""
        return replace(
            settings,
            target=None,
            max_seconds=None,
            snapshot_quota=None,
            concurrency=None,
            keep_latest=1,
            max_losses=1000,
            idle=self._chance.choice([None, 8.0]),
        )

    def joins(self, drawn: float) -> bool:
        """Let all experiments join the first with `together`."""
        return self._together or super().joins(drawn)

    def _stop_one(self) -> None:
        """Let a person stop one of several experiments of a group."""
        core = self.scheduler.core
        groups = [stream for stream in core.streams.values() if len(stream.running) > 1] if core is not None else []
        if not groups or (core is not None and core.awaits_answer(groups[0].id)):
            self.world.later(1.0, self._stop_one)
            return
        self.stopped += 1
        experiment = self._chance.choice(groups[0].running)
        self.scheduler.handle(Operated(self.world.now, groups[0].id, "stop", experiment.id))

    def _hold_again(self) -> None:
        """Do nothing: no person pauses or ends a job."""

    def _make_room_again(self) -> None:
        """Do nothing: nodes evict no copies."""

    def _request(self) -> None:
        """Let a client send requests repeatedly."""
        if not self.world.faulty:
            return
        self.world.later(self._chance.uniform(0.5, 6.0), self._request)
        core = self.scheduler.core
        open_ones = [m.id for stream in core.streams.values() for m in stream.running] if core is not None else []
        if core is None or not open_ones:
            return
        stream, experiment = core.find(self._chance.choice(open_ones)) or (None, None)
        assert stream is not None
        assert experiment is not None
        for more in reversed(range(self._chance.randint(1, 3))):  # The scheduler may crash between them.
            wanted = training.sequenced(self._chance.randrange(1000))
            position = self._chance.randint(1, experiment.settings.max_position)
            self.requests += 1
            asked = Requested(self.world.now, stream.id, f"r{self.requests}", wanted, position, experiment.id, more)
            self.scheduler.handle(asked)

    def check(self) -> tuple[int, int]:
        """Check that no state was trained again without a reason; return the numbers of lost and of repeated states."""
        paths: dict[str, dict[str, list[int]]] = {}
        assert self.scheduler.core is not None
        for stream in self.invariants.streams(self.scheduler.core).values():
            for job in stream.jobs.values():
                if job.hyperparameters is not None:
                    paths.setdefault(stream.id, {})[job.id] = path(job.hyperparameters)
        trained, lost = by_group(self.world.trained), by_group(self.world.lost)
        late = Counter[State]()
        for group, own in paths.items():
            for name, states in own.items():
                parts = {common(states, other) for job, other in own.items() if job != name}
                passed = {p for part in parts for p in range(max(part - SAVE_EVERY, 0), part)}
                late.update((group, states[p]) for p in passed)
        for state, times in trained.items():
            allowed = 1 + lost[state] + late[state]
            assert times <= allowed, f"{state} was trained {times} times, {lost[state]} were lost, {late[state]} late"
        return lost.total(), trained.total() - len(trained)


def path(hyperparameters: Mapping[str, object]) -> list[int]:
    """Return the states of a trial that trains alone."""
    rates = training.Rates(hyperparameters)
    state, found = training.initial(rates.before(1)), list[int]()
    for position in range(1, MAX_POSITION + 1):
        state = training.train(state, rates.before(position), position)
        found.append(state)
    return found


def common(one: list[int], other: list[int]) -> int:
    """Return the number of states that two trials have in common."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=True))))


def by_group(counts: Mapping[tuple[str, str, int], int]) -> Counter[State]:
    """Return how often each state was reached in each experiment or group."""
    found = Counter[State]()
    for (stream, _, state), times in counts.items():
        found[stream, state] += times
    return found


@pytest.mark.timeout(240)
def test_only_what_a_killed_runner_had_not_saved_or_what_was_passed_unknown_is_trained_again() -> None:
    lost = again = requests = crashes = 0
    for seed in range(10):
        schedule = Counting(seed)
        outcome = schedule.run()
        assert outcome.error == "", outcome.seed
        one, other = schedule.check()
        lost, again, requests = lost + one, again + other, requests + schedule.requests
        crashes += outcome.faults["scheduler crash"]
    assert lost > 2
    assert again > 2
    assert requests > 40
    assert crashes > 4


@pytest.mark.timeout(240)
def test_experiments_together_train_no_state_twice_either_also_when_one_of_them_is_stopped() -> None:
    joined = stopped = lost = crashes = 0
    for seed in range(10):
        schedule = Counting(seed, together=True)
        outcome = schedule.run()
        assert outcome.error == "", outcome.seed
        lost += schedule.check()[0]
        joined, stopped = joined + outcome.faults["joined a group"], stopped + schedule.stopped
        crashes += outcome.faults["scheduler crash"]
    assert joined > 3
    assert stopped > 2
    assert lost > 0
    assert crashes > 2
