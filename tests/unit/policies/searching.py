"""A test fixture that connects a built-in policy to an engine core, with proposals and reports given by the test."""

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
    """An engine core in which the given policy serves experiment x and its group.

    Other experiments have a policy that always answers CONTINUE.
    """

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
        """Return the current rungs of the policy."""
        found = self._host.rungs(self.stream, self.now)
        assert found is not None
        return found

    def propose(self, job: str) -> None:
        """Answer the request for the configuration of a job."""
        self.feed(Answered(self.now, StreamId("x"), f"create/{job}", {"lr": float(job)}))

    def begin(self) -> None:
        """Let all starting runs report that they train."""
        for name in list(self.stream.live):
            if self.job(name).state is JobState.STARTING:
                self.say(self.key(name), Started(self.run(name).start))

    def go_on(self) -> None:
        """Answer all requests for configurations and let all starting runs train."""
        while tickets := [ticket for ticket in self.stream.asks if ticket.startswith("create/")]:
            self.propose(tickets[0].removeprefix("create/"))
        self.begin()

    def release(self) -> None:
        """Deliver the answers that were withheld while `hold` was set, and deliver further answers at once."""
        self.hold = False
        while self.held:
            self.feed(self.answer(self.held.popleft()))
