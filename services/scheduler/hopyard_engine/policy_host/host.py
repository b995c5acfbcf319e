"""The policy host: makes the core's up-calls on a policy object in this process and turns its answers into events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from hopyard._net.rpc.values import hyperparameters_to_proto
from hopyard.errors import InvalidInput
from hopyard.policy import Cluster, Policy
from hopyard.policy.invoke import ask, describe, raised, too_large
from hopyard.policy.rungs import Rung
from hopyard.policy.stages import StageView
from hopyard.policy.vocabulary import AllocateJobs, CreateJob, ForkJob, Reason, ReasonCode
from hopyard_engine.core.effects import UpCall
from hopyard_engine.core.events import PolicyAnswered, PolicyFailed
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.journal.codec import decode, encode, kind_of
from hopyard_engine.policy_host.view import CoreView, JobViews

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """An answer of a policy as the journal returns it.

    Attributes:
        event: The answer with the values that its record holds.
        payload: The payload of its record.
    """

    event: PolicyAnswered
    payload: bytes


class Host(Protocol):
    """Answers the up-calls of a stream."""

    def answer(self, experiment: Stream, call: UpCall) -> PolicyAnswered | PolicyFailed:
        """Makes one up-call. Returns the answer, or the failure of the policy."""


class MissingPolicy:
    """Replaces a policy that cannot be created: every up-call fails, which pauses its experiment but affects no other."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason

    def answer(self, experiment: Stream, call: UpCall) -> PolicyFailed:
        """Returns a failure with the reason."""
        return PolicyFailed(call.at, call.stream, call.number, self.reason)


class PolicyHost:
    """Hosts the policy of one stream. The policy's state depends only on its up-calls, so repeating them rebuilds it.

    Args:
        policy: A new policy object.
        recorded: Whether answers are journalled. If True, an answer is returned as the journal would return it.
    """

    def __init__(self, policy: Policy, *, recorded: bool = True) -> None:
        self._policy = policy
        self._recorded = recorded
        self.recorded: RecordedAnswer | None = None
        """The last answer with the payload of its record, so that it is encoded only once; None: no answer was recorded."""
        self._views = JobViews()

    @property
    def version(self) -> str:
        """The version of the policy's decisions."""
        return self._policy.version

    def answer(self, experiment: Stream, call: UpCall) -> PolicyAnswered | PolicyFailed:
        """Makes one up-call.

        Returns:
            The answer, or a failure if the policy raised an error or returned an invalid answer. A failure pauses the experiment.
        """
        try:
            said = ask(
                self._policy,
                lambda: CoreView(experiment, call, self._views),
                call.number,
                call.verdicts,
                call.call,
            )
            answered = PolicyAnswered(call.at, call.stream, said.answer, said.demand, said.gang, said.nodes)
            if not self._recorded:
                return answered
            self.recorded = as_recorded(answered)
            return self.recorded.event
        except BaseException as error:  # noqa: BLE001 - a policy is foreign code and may even call sys.exit
            return PolicyFailed(call.at, call.stream, call.number, raised(self._policy, call.number, call.call, error))

    def rungs(self, experiment: Stream, at: float) -> tuple[Rung, ...] | None:
        """Returns the rungs of the policy after the up-calls so far, or None if it has none.

        Raises:
            InvalidInput: The policy raised an error or gave a command.
        """
        return self._look(experiment, at, "rungs", self._policy.rungs)

    def stages(self, experiment: Stream, at: float) -> tuple[StageView, ...] | None:
        """Returns the stages that trials share after the up-calls so far, or None if the policy trains each trial separately.

        Raises:
            InvalidInput: The policy raised an error or gave a command.
        """
        return self._look(experiment, at, "stages", self._policy.stages)

    def confidences(self, experiment: Stream, at: float) -> dict[str, float]:
        """Returns the policy's probability for each job to reach the policy's goal, after the up-calls so far; empty: it has none.

        Raises:
            InvalidInput: The policy raised an error or gave a command.
        """
        return dict(self._look(experiment, at, "confidences", self._policy.confidences))

    def _look(self, experiment: Stream, at: float, what: str, ask: Callable[[Cluster], T]) -> T:
        view = CoreView(experiment, UpCall(experiment.id, 0, at, 0, AllocateJobs()), self._views)
        try:
            found = ask(view)
        except Exception as error:
            raise InvalidInput(describe(self._policy, what, error)) from error
        if view.commands:
            raise InvalidInput(f"{type(self._policy).__name__}: {what} may only look, found {view.commands[0]}")
        return found


def as_recorded(answered: PolicyAnswered) -> RecordedAnswer:
    """Returns the answer as the journal would return it, so that the core acts only on recorded values.

    Raises:
        TypeError, ValueError, InvalidInput: A command contains a value that a record or a message to an agent cannot, or the answer
            is too large for a record.
    """
    for command in answered.answer.commands:
        if isinstance(command, CreateJob | ForkJob) and command.hyperparameters is not None:
            hyperparameters_to_proto(command.hyperparameters)
    written = encode(answered)
    if wrong := too_large(len(written)):
        raise InvalidInput(wrong)
    recorded = decode(kind_of(answered), written)
    if not isinstance(recorded, PolicyAnswered):
        raise TypeError(f"the journal would give back {recorded!r}")
    return RecordedAnswer(recorded, written)


def took_too_long(policy: str, seconds: float, call: UpCall | None, *, again: bool = False) -> Reason:
    """Returns the reason for giving up a policy that took too long in an up-call, or in its creation (`call` None).

    `seconds` is the time limit. `again` says that the up-call was repeated from the journal.
    """
    source = "the journal" if again else None
    if call is None:
        return Reason.of(ReasonCode.POLICY_CREATION_TOO_SLOW, policy=policy, seconds=seconds, source=source)
    kind = type(call.call).__name__
    code = ReasonCode.POLICY_TOO_SLOW
    return Reason.of(code, policy=policy, seconds=seconds, up_call=call.number, call=kind, source=source)
