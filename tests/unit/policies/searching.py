"""A core with a policy of this package: the test says what generators propose and what runs report."""

from __future__ import annotations

from typing import Any

from hopyard.policy import Policy
from hopyard.policy.rungs import Rung
from hopyard.policy.vocabulary import JobState, StreamId
from hopyard_engine.core.effects import UpCall
from hopyard_engine.core.events import Answered, PolicyAnswered, Started
from hopyard_engine.policy_host.host import PolicyHost
from tests.unit.core.rig import Rig


class Searching(Rig):
    """The policy serves the experiment x and whoever joins it; others have one that lets everything go on."""

    def __init__(self, policy: Policy, **terms: Any) -> None:
        self._host = PolicyHost(policy)
        wishes = {
            "statistics": False,
            "every_iteration": policy.every_iteration,
            "ends_jobs": policy.ends_jobs,
            "forks": policy.forks,
        }
        super().__init__(**{**wishes, **terms})

    def answer(self, call: UpCall) -> PolicyAnswered:
        if call.stream != "x":
            return super().answer(call)
        answered = self._host.answer(self.stream, call)
        assert isinstance(answered, PolicyAnswered), answered
        return answered

    def rungs(self) -> tuple[Rung, ...]:
        """Who stands where."""
        found = self._host.rungs(self.stream, self.now)
        assert found is not None
        return found

    def propose(self, job: str) -> None:
        """A generator proposes what it was asked for."""
        self.feed(Answered(self.now, StreamId("x"), f"create/{job}", {"lr": float(job)}))

    def begin(self) -> None:
        """Runs that were started train."""
        for name in list(self.stream.live):
            if self.job(name).state is JobState.STARTING:
                self.say(self.key(name), Started(self.run(name).start))

    def go_on(self) -> None:
        """The generators propose all that they are asked for, and runs begin."""
        while tickets := [ticket for ticket in self.stream.asks if ticket.startswith("create/")]:
            self.propose(tickets[0].removeprefix("create/"))
        self.begin()

    def release(self) -> None:
        """The policy answers what it was asked while `hold` was set, and is heard at once from now on."""
        self.hold = False
        while self.held:
            self.feed(self.answer(self.held.popleft()))
