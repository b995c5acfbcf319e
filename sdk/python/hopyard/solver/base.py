"""What every solver promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class Solver(ABC):
    """Answers one kind of a policy's questions (`cluster.ask`): a schedule, an assignment, a plan, within a time limit.

    A solver is a function of its payload: it reads no clock but to stop in time, no file, no network and no source of chance that
    the payload does not seed, and remembers nothing from one question to the next. Its answers are journalled, so that neither a
    replay nor a recovery asks it again for what it has answered.

    In a live cluster it runs beside the scheduler, in a process of its own for each question, of a lower priority than the
    services'. What that process does, crash or hang included, costs nobody else anything: the policy hears an error.

    Ship one as an entry point in the group `hopyard.solvers`; the name there is the kind that policies ask for. A kind of the form
    `module:Class` is imported by the scheduler's Python (docs/solvers.md).
    """

    @abstractmethod
    def solve(self, payload: Any, seconds: float) -> Any:
        """Answers a question.

        Args:
            payload: What the policy sent: plain data, as JSON gives it back (lists for tuples, text for keys).
            seconds: How long it may take by the clock (> 0). It is ended some time after that, and then has no answer: one that
                can do better and better stops in time and returns the best it has.

        Returns:
            Plain data that JSON can write, at most `hopyard.solver.invoke.MOST_BYTES` of it. `hopyard events` shows the text `said`
            of an object that has one.

        Raises:
            ValueError: The payload is none that it understands, or there is no answer; the message is what the policy hears. So is
                anything else that it raises.
        """
