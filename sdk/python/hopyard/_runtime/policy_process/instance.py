"""The policy of one experiment in a policy process: answers the scheduler's messages with the policy."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from hopyard._runtime.policy_process.calls import call_from_proto
from hopyard._runtime.policy_process.capabilities import capabilities_to_proto
from hopyard._runtime.policy_process.commands import answer_to_proto, verdict_from_proto
from hopyard._runtime.policy_process.state import MirroredState
from hopyard._runtime.policy_process.view import RemoteView
from hopyard.errors import InvalidInput
from hopyard.policy.base import Policy, capabilities_of
from hopyard.policy.invoke import ask, brief, describe, text_of, too_large
from hopyard.policy.views import ExperimentView
from hopyard.v1 import policy_pb2 as pb

_LOG = logging.getLogger(__name__)

Make = Callable[[Mapping[str, Any]], Policy]
"""A function that creates a policy from its parameters."""


class Instance:
    """The policy of one experiment with its state, in a policy process.

    It outlives the gRPC stream to the scheduler, so that the policy can continue on a new one.

    Args:
        make: Creates the policy from its parameters.

    Attributes:
        experiment: Id of the experiment; empty: none has been assigned yet.
        state: Copy of the experiment's state, as received from the scheduler.
    """

    def __init__(self, make: Make) -> None:
        self._make = make
        self._policy: Policy | None = None
        self._wrong = ""
        self.state = MirroredState()
        self._memory = ""
        self._answer: pb.Answer | None = None
        self.experiment = ""

    def hello(self, name: str) -> pb.PolicyHello:
        """Return the first message to the scheduler on a new gRPC stream.

        It names the experiment and the last answered up-call, if there are any, so that the scheduler can continue from there.

        Args:
            name: Name of the policy.
        """
        answered = self._answer.number if self._answer is not None else 0
        return pb.PolicyHello(policy=name, experiment=self.experiment, memory=self._memory, answered=answered)

    def welcome(self, message: pb.PolicyWelcome) -> None:
        """Process the scheduler's reply to hello, which assigns an experiment.

        `message.answered` is the number of the last up-call that the present policy has answered. If it is 0, create a new policy
        with empty state; otherwise continue with the present one. An error of the policy's constructor is stored and returned with
        each answer.
        """
        self.experiment, self._memory = message.experiment, message.memory
        if message.answered:
            return
        self.state, self._answer, self._wrong = MirroredState(), None, ""
        try:
            self._policy = self._make(json.loads(message.parameters_json))
        except InvalidInput as error:
            self._policy, self._wrong = None, brief(str(error))
        except Exception as error:  # noqa: BLE001 - user code; its error is sent with the first answer
            self._policy, self._wrong = None, f"cannot be made: {type(error).__name__}: {text_of(error)}"
            _LOG.exception("experiment %s: its policy cannot be made", self.experiment)

    def answer(self, message: pb.UpCall) -> pb.Answer:
        """Make the up-call in `message` on the policy, and return the answer; an error of the policy becomes an answer with `error`.

        An up-call with the same number as the last one is not repeated: its stored answer is returned.
        """
        if self._answer is None or self._answer.number != message.number:
            self._answer = self._answered(message)
        return self._answer

    def _answered(self, message: pb.UpCall) -> pb.Answer:
        policy = self._policy
        self.state.apply(message.changes)
        if policy is None:
            return pb.Answer(number=message.number, error=self._wrong)
        call = call_from_proto(message)
        try:
            said = ask(
                policy,
                lambda: RemoteView(self.state, message.number, message.at, message.seed),
                message.number,
                map(verdict_from_proto, message.verdicts),
                call,
            )
            answer = answer_to_proto(said)
            if wrong := too_large(answer.ByteSize()):
                raise ValueError(wrong)
            return answer
        except BaseException as error:  # noqa: BLE001 - user code; even sys.exit becomes an error in its answer
            what = f"up-call {message.number} {type(call).__name__}"
            _LOG.exception("experiment %s: %s failed on %s", self.experiment, type(policy).__name__, what)
            return pb.Answer(number=message.number, error=describe(policy, what, error))


def reviewed(make: Make, message: pb.PolicyReview, label: str = "") -> pb.PolicyReviewed:
    """Create a policy, call its `review` with an experiment's settings, and return the result or the error as a message.

    Args:
        make: Creates the policy from its parameters.
        message: The settings of the experiment and the parameters of the policy.
        label: Prefix of the error of a failed review, such as "policy mine: ".
    """
    try:
        policy = make(json.loads(message.parameters_json))
    except Exception as error:  # noqa: BLE001 - user code; the error is returned to the creator of the experiment
        return pb.PolicyReviewed(error=_text_of(error))
    try:
        said: object = policy.review(_terms(message))
        if not isinstance(said, str):
            raise ValueError(f"review answered {said!r:.120}; needed is text, empty if there is nothing to say")
        return capabilities_to_proto(capabilities_of(policy), brief(said))
    except ValueError as error:
        return pb.PolicyReviewed(error=f"{label}{_text_of(error)}")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
        return pb.PolicyReviewed(error=f"{label}could not look at the terms: {type(error).__name__}: {text_of(error)}")


def _text_of(error: Exception) -> str:
    """Return the message of an exception, preceded by its type unless it is a ValueError; the type alone if there is no message."""
    text = text_of(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {text_of(error)}"
    return text or type(error).__name__


def _terms(message: pb.PolicyReview) -> ExperimentView:
    state = MirroredState()
    state.apply([pb.StateChange(experiment=message.experiment)])
    return state.experiments[message.experiment.id]
