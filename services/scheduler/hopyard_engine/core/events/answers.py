"""Events that answer a stream: those of its policy and policy process, generators, predictors and solvers, and its timers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hopyard.policy.vocabulary import Answer, StreamId
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode


@dataclass(frozen=True, slots=True)
class PolicyAnswered:
    """The policy answered an up-call, and stated its demand for slots.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        answer: The answer, with the number of the up-call.
        demand: Number of slots that the policy can use now; None: as many as possible.
        gang: Number of slots that it takes at once (>= 1).
        nodes: Names of the only nodes whose slots it can use, sorted; empty: any node.
        rungs: For each job on a rung of successive halving (job id, number of its highest rung with a result, number of rungs of its
            bracket). Stated only with a demand of 0, when the experiment may end, to explain where jobs stopped. It does not affect
            any decision of the core.
    """

    at: float
    stream: StreamId
    answer: Answer
    demand: int | None = None
    gang: int = 1
    nodes: tuple[str, ...] = ()
    rungs: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyFailed:
    """The policy raised an error, returned an invalid answer, or exceeded its time for an up-call.

    The RUNNING experiments of the stream are paused.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        number: Number of the up-call.
        reason: What happened.
        unheard: Whether the policy exceeded its time. If so, the up-call is made again with another number when an experiment of the
            stream is resumed, and a replay skips the first one.
    """

    at: float
    stream: StreamId
    number: int
    reason: Reason
    unheard: bool = False

    @property
    def diverged(self) -> bool:
        """Whether the failure is that a replay of the policy gave other decisions than the recorded ones.

        If so, the policy did not receive the up-call that the failure answers.
        """
        return self.reason.code is ReasonCode.POLICY_DIVERGED


@dataclass(frozen=True, slots=True)
class PolicyProcess:
    """A process for the stream's policy connected or disconnected. For information only; the event changes no state.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        here: True: the process connected. False: it disconnected.
        again: Number of earlier up-calls that were repeated to the process, because it started without state.
    """

    at: float
    stream: StreamId
    here: bool
    again: int = 0


@dataclass(frozen=True, slots=True)
class Answered:
    """A generator, predictor or solver answered an `AskOutside` question.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        ticket: Ticket of the question.
        result: The answer as plain data; None if there is an error. A generator also answers None if it has no more proposals.
        error: Why there is no answer; empty: no error.
    """

    at: float
    stream: StreamId
    ticket: str
    result: Any = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class TimerElapsed:
    """A timer of a stream, or of the cluster (`CLUSTER_STREAM`), elapsed. `ticket` is the ticket of the timer (`SetTimer`)."""

    at: float
    stream: StreamId
    ticket: str
