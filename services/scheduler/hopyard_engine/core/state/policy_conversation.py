"""The conversation of a stream with its policy: at most one up-call is in flight, that is, made and not yet answered.

Further up-calls wait in `PolicyConversation.calls`. `AllocateJobs` is made when no other up-call waits and something may have changed
for the policy (`allocation_due`). Refusals of the policy's commands are delivered with its next up-call.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from hopyard.policy.vocabulary import AllocateJobs, Call, IterationFinish, StreamId, Verdict
from hopyard.policy.vocabulary.reasons import Reason
from hopyard_engine.core.state.entities import Run
from hopyard_engine.core.state_machines.transitions import STORY_LENGTH, TransitionTable


class ConversationState(enum.Enum):
    """The state of the conversation.

    IDLE: no up-call is in flight. ASKED: an up-call is in flight. SILENT: the policy exceeded its time for an answer; it gets no
    up-call until an experiment of the stream is resumed, joins or is extended.
    """

    IDLE = "IDLE"
    ASKED = "ASKED"
    SILENT = "SILENT"


_S = ConversationState

CONVERSATION: Final = TransitionTable(
    "policy of stream",
    _S.IDLE,
    [
        ([_S.IDLE], _S.ASKED, "an up-call is made"),
        ([_S.ASKED], _S.IDLE, "the policy answers or fails, or the stream ends"),
        ([_S.ASKED], _S.SILENT, "the policy takes too long and is given up"),
        ([_S.SILENT], _S.IDLE, "an experiment of the stream is resumed, joins or is extended"),
    ],
)


class InFlight(NamedTuple):
    """An up-call that is made and not yet answered.

    Attributes:
        number: Number of the up-call.
        call: The up-call.
        run: The run that needs the decision in the answer; None: no run does.
    """

    number: int
    call: Call
    run: Run | None


class PolicyConversation:
    """Represents the conversation: the queue of up-calls, the up-call in flight, and the refusals to deliver with the next one.

    Times are in seconds since the Unix epoch.

    Args:
        stream: Id of the stream, for error messages.

    Attributes:
        state: The state of the conversation.
        calls: Queued up-calls, in order, each with the run that needs the decision in its answer (None: no run does).
        in_flight: The up-call without an answer; None unless the state is ASKED.
        asked_at: Time at which that up-call was made.
        number: The number of the newest up-call; 0: none yet.
        verdicts: Refusals since the newest up-call, delivered with the next one.
        sent_verdicts: Refusals delivered with the newest up-call.
        allocation_due: Whether an `AllocateJobs` up-call must be made, because a slot, job, limit or snapshot changed, so that the
            policy may be able to start more.
        demand_outdated: Whether the policy must state its demand again, because there may be more to start than when it stated it.
        at_rest: Whether the policy started nothing in its answer to the last `AllocateJobs` up-call.
        answers: Number of answers since the last event that the policy did not cause. Negative while answers to queued up-calls are not
            counted (`rest`).
        rested_at: Time of the last event that the policy did not cause.
        refusal: The newest refusal since that event; None: none.
    """

    def __init__(self, stream: StreamId) -> None:
        self._stream = stream
        self._story: deque[str] = deque(maxlen=STORY_LENGTH)
        self.state = CONVERSATION.initial
        self.calls: deque[tuple[Call, Run | None]] = deque()
        self.in_flight: InFlight | None = None
        self.asked_at = 0.0
        self.number = 0
        self.verdicts: list[Verdict] = []
        self.sent_verdicts: tuple[Verdict, ...] = ()
        self.allocation_due = True
        self.demand_outdated = False
        self.at_rest = False
        self.answers = 0
        self.rested_at = 0.0
        self.refusal: Reason | None = None

    def queue(self, call: Call, run: Run | None = None) -> None:
        """Queue an up-call.

        Args:
            call: The up-call.
            run: The run that needs the decision in the answer; None: no run does. If the run ends first, the up-call is dropped.
        """
        self.calls.append((call, run))
        self.at_rest = False

    def wake(self) -> None:
        """Mark an `AllocateJobs` up-call as due. It is made when no other up-call is in flight or queued."""
        self.allocation_due = True
        self.at_rest = False

    def is_answered_by(self, number: int) -> bool:
        """Return whether an answer with this up-call number belongs to the up-call in flight."""
        return self.in_flight is not None and self.in_flight.number == number

    @property
    def busy(self) -> bool:
        """Whether an up-call is in flight or queued."""
        return bool(self.calls) or self.in_flight is not None

    def take_next(self, is_current: Callable[[Run | None], bool]) -> tuple[Call, Run | None] | None:
        """Remove and return the next queued up-call with its run, or return None if the queue is empty.

        Requests for a decision (`IterationFinish`) whose run no longer waits for one are dropped.

        Args:
            is_current: Returns whether the given run still waits for the decision of its queued request.
        """
        while self.calls:
            call, run = self.calls.popleft()
            if not isinstance(call, IterationFinish) or is_current(run):
                return call, run
        return None

    def ask(self, call: Call, run: Run | None, at: float) -> tuple[int, tuple[Verdict, ...]]:
        """Put an up-call in flight and assign the next number to it.

        Args:
            call: The up-call.
            run: The run that needs the decision in the answer; None: no run does.
            at: The current time in seconds since the Unix epoch.

        Returns:
            The number of the up-call, and the refusals to deliver with it.
        """
        self._enter(ConversationState.ASKED, type(call).__name__)
        self.number += 1
        self.demand_outdated = False
        if isinstance(call, AllocateJobs):
            self.allocation_due = False
        self.in_flight, self.asked_at = InFlight(self.number, call, run), at
        self.sent_verdicts, self.verdicts = tuple(self.verdicts), []
        return self.number, self.sent_verdicts

    def answered(self) -> InFlight:
        """Remove and return the up-call in flight, because the policy answered it or failed. There must be one."""
        assert self.in_flight is not None
        self._enter(ConversationState.IDLE, "answered")
        call, self.in_flight = self.in_flight, None
        return call

    def give_up(self) -> None:
        """Stop waiting for the policy, which exceeded its time.

        When `listen` allows up-calls again, the unanswered up-call is made again before the queued ones. But if it is `AllocateJobs`,
        it is made after the queued ones. The refusals that were delivered with it are delivered again.
        """
        assert self.in_flight is not None
        self._enter(ConversationState.SILENT, "given up")
        (_, call, run), self.in_flight = self.in_flight, None
        self.verdicts[:0] = self.sent_verdicts
        if isinstance(call, AllocateJobs):  # It is made again when no other up-call waits.
            self.wake()
        else:
            self.calls.appendleft((call, run))

    def listen(self) -> None:
        """Allow up-calls again after `give_up`; else do nothing."""
        if self.state is ConversationState.SILENT:
            self._enter(ConversationState.IDLE, "listens again")

    def refused(self, verdict: Verdict) -> None:
        """Record the refusal of a command of the policy, to be delivered with the next up-call."""
        self.refusal = verdict.reason
        self.verdicts.append(verdict)

    def rest(self, at: float, calls_of_an_event: int) -> None:
        """Reset the count of the policy's answers (`answers`), because something happened that the policy did not cause.

        Args:
            at: Time of the event in seconds since the Unix epoch.
            calls_of_an_event: Number of up-calls that one event normally causes. If more are queued, the policy did not cause the
                excess, so the answers to it are not counted.
        """
        self.answers, self.refusal = -max(len(self.calls) - calls_of_an_event, 0), None
        self.rested_at = at

    def end(self, *, drop_calls: bool) -> None:
        """Abandon the up-call in flight, because all experiments of the stream have ended. Its answer is ignored.

        Args:
            drop_calls: Whether to empty the queue too. If False, the queued up-calls are made when the stream continues.
        """
        if drop_calls:
            self.calls.clear()
        if self.state is ConversationState.ASKED:
            self._enter(ConversationState.IDLE, "the stream ends")
            self.in_flight = None

    def _enter(self, state: ConversationState, why: str) -> None:
        CONVERSATION.check(self._stream, self.state, state, why, self._story)
        self.state = state
        self._story.append(f"{state.name} ({why})")
