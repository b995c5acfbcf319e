"""Tests of the fault simulation with displaced jobs first, and with first jobs that fail from the same cause until a person resumes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from hopyard.policy.vocabulary import RunEndReason
from hopyard.policy.vocabulary.reasons import ReasonCode
from hopyard_engine.core.events import Ended, Operated
from hopyard_engine.core.types import Settings
from tests.reasons import said
from tests.simulation.process import Process
from tests.simulation.schedule import Schedule


class Displacing(Schedule):
    """A schedule in which displaced jobs come first. Counts the moments at which a displaced job waits before one that is not."""

    def __init__(self, probe: str, seed: int, events: int = 150) -> None:
        self.overtaken = 0
        super().__init__(probe, seed, events)
        self.world.later(0.5, self._look)

    def adapted(self, settings: Settings) -> Settings:
        """Let displaced jobs come first."""
        return replace(settings, displaced_first=True)

    def _look(self) -> None:
        """Check the order of the idle queues repeatedly."""
        if not self.world.faulty:
            return
        self.world.later(0.5, self._look)
        for stream in self.scheduler.core.streams.values() if self.scheduler.core is not None else ():
            ranks = [(-(job.priority or 0.0), not job.displaced) for job in stream.idle_jobs()]
            assert ranks == sorted(ranks)
            self.overtaken += any(one[0] == two[0] and one[1] < two[1] for one, two in pairwise(ranks))


class Broken(Displacing):
    """A schedule in which every program fails from one cause until an experiment has paused for that and a person resumes it."""

    def __init__(self, probe: str, seed: int, events: int = 150) -> None:
        self.alike = 0
        self.mended = False
        super().__init__(probe, seed, events)
        self.world.later(1.0, self._mend)

    def _mend(self) -> None:
        """Resume experiments that paused because their first jobs failed."""
        self.world.later(1.0, self._mend)
        core = self.scheduler.core
        streams = list(core.streams.values()) if core is not None else []
        for stream, one in [(each, one) for each in streams for one in each.experiments.values()]:
            alike = one.reason is not None and one.reason.code is ReasonCode.JOBS_FAIL_ALIKE
            if alike and self.scheduler.core is core and core is not None and not core.awaits_answer(stream.id):
                self.alike += 1
                self.mended = True
                self.scheduler.handle(Operated(self.world.now, stream.id, "resume", one.id))


@pytest.mark.timeout(240)
def test_displaced_jobs_come_first_under_faults() -> None:
    overtaken = 0
    for probe in ("barrier", "pairs", "predict", "stages"):
        for seed in range(3):
            schedule = Displacing(probe, seed)
            outcome = schedule.run()
            assert outcome.error == "", outcome.seed
            overtaken += schedule.overtaken
    assert overtaken > 3


@pytest.mark.timeout(240)
def test_broken_programs_pause_their_experiments_under_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    trains = Process._iterated
    schedule: Broken

    def iterated(process: Process) -> None:
        if schedule.mended or not process.alive:
            trains(process)
        else:
            cause = said("ValueError: broken")
            process.finish(
                Ended(RunEndReason.FAILED, process.position, user_code=True, cause=cause, fingerprint="broken")
            )

    monkeypatch.setattr(Process, "_iterated", iterated)
    paused = 0
    for probe in ("barrier", "pairs", "predict"):
        for seed in range(4):
            schedule = Broken(probe, seed)
            outcome = schedule.run()
            assert outcome.error == "", outcome.seed
            paused += schedule.alike
    assert paused > 3
