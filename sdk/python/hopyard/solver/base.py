"""The base class of solvers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class Solver(ABC):
    """Base class of solvers: plugins that solve optimization problems for policies, such as schedules, within a time limit.

    A policy sends a request with the down-call `cluster.ask`; the answer comes back to it in an up-call.

    The result must depend only on the payload. A solver must not read files, the network, or a clock (except to stop in
    time), must seed all random numbers from the payload, and must not store anything between requests. Answers are
    journalled, so a replay or a recovery does not repeat an answered request.

    In a live cluster, each request runs in a separate process on the scheduler's host, with a lower priority than the
    services. If that process crashes or exceeds its time, the policy receives an error; nothing else is affected.

    Publish a solver as an entry point in the group `hopyard.solvers`. The name of the entry point is the kind that
    policies name in `cluster.ask`. A kind can also have the form `module:Class`; the scheduler's Python imports the
    class then (docs/solvers.md).
    """

    @abstractmethod
    def solve(self, payload: Any, seconds: float) -> Any:
        """Compute the answer to one request.

        Args:
            payload: The request as the policy sent it: plain data, after conversion to JSON and back (tuples are lists,
                keys are text).
            seconds: Time limit in seconds of elapsed time, > 0. The process is ended some time after the limit, and the
                request then fails. A solver that improves its result step by step should return the best one before the
                limit.

        Returns:
            Plain data that can be written as JSON, at most `hopyard.solver.invoke.MOST_BYTES` bytes of it. If it is an
            object with a text `said`, `hopyard events` shows that text.

        Raises:
            ValueError: The payload is invalid, or the problem has no solution. The policy receives the message. Any
                other exception also fails the request, and the policy receives its type, message and location.
        """
