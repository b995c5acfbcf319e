"""The policy host: makes the core's up-calls on a policy object in this process and turns its answers into events."""

from __future__ import annotations

from collections.abc import Callable
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


class Host(Protocol):
    """What answers an experiment's up-calls."""

    def answer(self, experiment: Stream, call: UpCall) -> PolicyAnswered | PolicyFailed:
        """Makes one up-call; answers its result or its failure."""


class MissingPolicy:
    """Stands for a policy that cannot be made (any more): every up-call fails, which pauses its experiment and nothing else."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason

    def answer(self, experiment: Stream, call: UpCall) -> PolicyFailed:
        """Fails with the reason."""
        return PolicyFailed(call.at, call.stream, call.number, self.reason)


class PolicyHost:
    """One experiment's policy. Its memory is a function of the up-calls made on it, so it is rebuilt by making them again.

    Args:
        policy: Fresh.
        recorded: Whether answers are journalled: then they are what the journal gives back.
    """

    def __init__(self, policy: Policy, *, recorded: bool = True) -> None:
        self._policy = policy
        self._recorded = recorded
        self._views = JobViews()

    @property
    def version(self) -> str:
        """The version of the policy's decisions."""
        return self._policy.version

    def answer(self, experiment: Stream, call: UpCall) -> PolicyAnswered | PolicyFailed:
        """Makes one up-call.

        Returns:
            The answer, or the failure that pauses the experiment: whatever the policy raised, or an answer of the wrong kind.
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
            return as_recorded(answered) if self._recorded else answered
        except BaseException as error:  # noqa: BLE001 - a policy is somebody else's code; even sys.exit is its answer
            return PolicyFailed(call.at, call.stream, call.number, raised(self._policy, call.number, call.call, error))

    def rungs(self, experiment: Stream, at: float) -> tuple[Rung, ...] | None:
        """Who stands where after the up-calls so far; None: the policy has no rungs.

        Raises:
            InvalidInput: The policy raised, or did more than look.
        """
        return self._look(experiment, at, "rungs", self._policy.rungs)

    def stages(self, experiment: Stream, at: float) -> tuple[StageView, ...] | None:
        """What trials have in common after the up-calls so far; None: the policy trains every trial for itself.

        Raises:
            InvalidInput: The policy raised, or did more than look.
        """
        return self._look(experiment, at, "stages", self._policy.stages)

    def confidences(self, experiment: Stream, at: float) -> dict[str, float]:
        """How likely the policy thinks each job is to reach what it looks for, after the up-calls so far; empty: it has no idea.

        Raises:
            InvalidInput: The policy raised, or did more than look.
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


def as_recorded(answered: PolicyAnswered) -> PolicyAnswered:
    """The answer as the journal gives it back, so that the core never acts on anything else.

    Raises:
        TypeError, ValueError, InvalidInput: A command holds what no record, or no message to an agent, can hold, or all together
            are too large for one.
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
    return recorded


def took_too_long(policy: str, seconds: float, call: UpCall | None, *, again: bool = False) -> Reason:
    """The failure of a policy that was given up over an up-call; None: while it was made."""
    source = "the journal" if again else None
    if call is None:
        return Reason.of(ReasonCode.POLICY_CREATION_TOO_SLOW, policy=policy, seconds=seconds, source=source)
    kind = type(call.call).__name__
    code = ReasonCode.POLICY_TOO_SLOW
    return Reason.of(code, policy=policy, seconds=seconds, up_call=call.number, call=kind, source=source)
