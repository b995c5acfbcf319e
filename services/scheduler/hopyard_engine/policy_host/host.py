"""The policy host: makes the core's up-calls on a policy object in this process and returns its answers as events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
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
    """An answer of a policy after its conversion to the journal format and back.

    Attributes:
        event: The answer, with the values that a decoded journal record contains.
        payload: The JSON payload of the journal record.
    """

    event: PolicyAnswered
    payload: bytes


class Host(Protocol):
    """Makes up-calls on the policy of one stream, wherever the policy runs."""

    def answer(self, stream: Stream, call: UpCall) -> PolicyAnswered | PolicyFailed:
        """Make one up-call on the policy.

        Args:
            stream: The stream in the state that the policy sees.
            call: The up-call.

        Returns:
            The answer of the policy, or a failure if the policy raised an error, returned an invalid answer, exceeded its time or
            cannot be reached.
        """


class MissingPolicy:
    """A host for a policy that cannot be created. Each up-call fails, which pauses the experiments of the stream but no others.

    Args:
        reason: The reason of the failures.
    """

    def __init__(self, reason: Reason) -> None:
        self.reason = reason

    def answer(self, stream: Stream, call: UpCall) -> PolicyFailed:
        """Return a failure of the up-call with the host's reason."""
        return PolicyFailed(call.at, call.stream, call.number, self.reason)


class PolicyHost:
    """A host of a policy object for one stream.

    The state of the policy depends only on its up-calls, so a repetition of them rebuilds it.

    Args:
        policy: A new policy object.
        recorded: Whether answers are journalled. If True, an answer is converted to its journal format and back, and invalid values
            are failures. If False, answers are returned unchanged.
    """

    def __init__(self, policy: Policy, *, recorded: bool = True) -> None:
        self._policy = policy
        self._recorded = recorded
        self.recorded: RecordedAnswer | None = None
        """The last answer with the payload of its record, so that it is encoded only once; None: no answer was recorded."""
        self._views = JobViews()

    @property
    def version(self) -> str:
        """The version of the policy's decisions, which changes when the same up-calls lead to other decisions."""
        return self._policy.version

    def answer(self, stream: Stream, call: UpCall) -> PolicyAnswered | PolicyFailed:
        """Make one up-call on the policy.

        Args:
            stream: The stream in the state that the policy sees.
            call: The up-call.

        Returns:
            The answer, or a failure if the policy raised an error or returned an invalid answer. No error is raised.
        """
        try:
            said = ask(
                self._policy,
                lambda: CoreView(stream, call, self._views),
                call.number,
                call.verdicts,
                call.call,
            )
            rungs = self.rungs(stream, call.at) if said.demand == 0 else None
            answered = PolicyAnswered(
                call.at, call.stream, said.answer, said.demand, said.gang, said.nodes, highest_rungs(rungs or ())
            )
            if not self._recorded:
                return answered
            self.recorded = as_recorded(answered)
            return self.recorded.event
        except BaseException as error:  # noqa: BLE001 - a policy is foreign code and may even call sys.exit
            return PolicyFailed(call.at, call.stream, call.number, raised(self._policy, call.number, call.call, error))

    def rungs(self, stream: Stream, at: float) -> tuple[Rung, ...] | None:
        """Return the rungs of the policy after the up-calls so far; None: the policy has none.

        Args:
            stream: The stream in the state that the policy sees.
            at: The current time in seconds since the Unix epoch.

        Raises:
            InvalidInput: The policy raised an error or issued a command.
        """
        return self._look(stream, at, "rungs", self._policy.rungs)

    def stages(self, stream: Stream, at: float) -> tuple[StageView, ...] | None:
        """Return the stages of training that trials share, after the up-calls so far; None: the policy trains each trial separately.

        Args:
            stream: The stream in the state that the policy sees.
            at: The current time in seconds since the Unix epoch.

        Raises:
            InvalidInput: The policy raised an error or issued a command.
        """
        return self._look(stream, at, "stages", self._policy.stages)

    def confidences(self, stream: Stream, at: float) -> dict[str, float]:
        """Return the probability of jobs, by id, to reach the target that the policy uses, after the up-calls so far.

        The target is the experiment's, or the policy's own in an experiment without one. Empty if the policy computes no probabilities.

        Args:
            stream: The stream in the state that the policy sees.
            at: The current time in seconds since the Unix epoch.

        Raises:
            InvalidInput: The policy raised an error or issued a command.
        """
        return dict(self._look(stream, at, "confidences", self._policy.confidences))

    def _look(self, stream: Stream, at: float, what: str, ask: Callable[[Cluster], T]) -> T:
        view = CoreView(stream, UpCall(stream.id, 0, at, 0, AllocateJobs()), self._views)
        try:
            found = ask(view)
        except Exception as error:
            raise InvalidInput(describe(self._policy, what, error)) from error
        if view.commands:
            raise InvalidInput(
                f"{type(self._policy).__name__}: {what} must not issue commands, found {view.commands[0]}"
            )
        return found


def highest_rungs(rungs: Iterable[Rung]) -> tuple[tuple[str, int, int], ...]:
    """Return for each job with a result on a rung: its id, the number of its highest such rung, and the number of rungs of its bracket.

    `rungs` is the result of `Policy.rungs`, which is ordered from the bottom in each bracket.
    """
    counts = Counter(rung.bracket for rung in rungs)
    return tuple(
        {
            entry.job: (entry.job, rung.number, counts[rung.bracket]) for rung in rungs for entry in rung.standings
        }.values()
    )


def as_recorded(answered: PolicyAnswered) -> RecordedAnswer:
    """Convert an answer to its journal format and back, so that the core uses only values that a replay will have too.

    Raises:
        TypeError, ValueError, InvalidInput: A command contains a value that a record or a message to an agent cannot contain. The
            class depends on the value.
        InvalidInput: The answer is too large for a record.
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
    """Return the reason for abandoning a policy that exceeded its time.

    Args:
        policy: Name of the policy.
        seconds: The time limit in seconds.
        call: The up-call that took too long; None: the creation of the policy did.
        again: Whether it is an earlier up-call of the journal, repeated to rebuild the state of a new policy process.
    """
    source = "the journal" if again else None
    if call is None:
        return Reason.of(ReasonCode.POLICY_CREATION_TOO_SLOW, policy=policy, seconds=seconds, source=source)
    kind = type(call.call).__name__
    code = ReasonCode.POLICY_TOO_SLOW
    return Reason.of(code, policy=policy, seconds=seconds, up_call=call.number, call=kind, source=source)
