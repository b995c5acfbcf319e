"""A policy in a process: sends up-calls to the process that serves it, and rebuilds the state of a new process."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from hopyard._net.rpc import MAX_MESSAGE_BYTES, Backoff
from hopyard._runtime.policy_process.commands import answer_from_proto
from hopyard._runtime.processes.timeouts import TimeLimitExceeded, within
from hopyard.errors import DataLoss, HopyardError, InvalidInput, TimedOut, Unavailable
from hopyard.policy.command_buffer import most_commands
from hopyard.policy.invoke import brief, too_large
from hopyard.policy.vocabulary import StreamId
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard.v1 import policy_pb2 as pb
from hopyard_engine.core.effects import UpCall
from hopyard_engine.core.events import Event, PolicyAnswered, PolicyFailed
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.journal.format import RecordError
from hopyard_engine.policy_host import RecordedAnswer, as_recorded, took_too_long
from hopyard_engine.replay import objection
from hopyard_scheduler.policy_process.connections import ConnectionLost, PolicyConnection
from hopyard_scheduler.policy_process.rebuild import repeat_up_calls
from hopyard_scheduler.policy_process.state_delta import StateDelta

_LOG = logging.getLogger(__name__)

MOST_LOSSES: Final = 3
"""Number of processes that may be lost during one up-call, the first one and two more; then the up-call fails."""


QUICK_SECONDS: Final = 0.004
"""Seconds within which a quick policy answers. A batch waits for the answers of quick policies."""

_TOLD_SECONDS: Final = 2.0
"""Seconds without a process after which its absence is shown to people as the reason for waiting."""


class ProcessSource(Protocol):
    """Provides the processes of a policy, one connection at a time.

    The caller takes a connection only after the last one has ended or was given back.
    """

    @property
    def absent(self) -> str:
        """An error text for the case that no process connects in time."""

    @property
    def last_output(self) -> str:
        """The last line that the present or the last process wrote; empty: none, or the output is elsewhere."""

    async def take(self, stream: StreamId) -> PolicyConnection:
        """Wait until a process is available, and return its connection. The caller limits the time.

        Args:
            stream: The stream that the process is to serve; empty: it is only asked whether it accepts a new experiment.
        """

    def give_back(self, connection: PolicyConnection) -> None:
        """Make a connection that is no longer in use available to the next call of `take`."""

    async def restart(self) -> None:
        """End the process whose connection was taken last, because it does not answer.

        No effect if the scheduler did not start the process, or if it has ended.
        """

    async def close(self) -> None:
        """End the processes that the scheduler started and release their resources."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits of a policy process.

    Attributes:
        answer: Maximum seconds for the answer to an up-call.
        absence: Maximum seconds to wait until a needed process is connected.
    """

    answer: float
    absence: float


class RemotePolicy:
    """The policy of one experiment in a process, which may be replaced by another one at any time.

    Args:
        name: The policy's name for people.
        stream: The id of the experiment's stream.
        spec_json: The experiment's specification as JSON.
        parameters: The policy's parameters.
        source: Provides the connections of processes.
        journal: Reads all events of the experiment.
        limits: Time limits.
        then: What a person should do once a process is available again; the text of a failure of the policy ends with it.
        tell: Called with True and the number of repeated up-calls when a process has connected, and with False and 0
            when the connected process has ended without an order of the scheduler.
        clock: Returns the Unix time in seconds for the time of an answer.
        own: True if the scheduler starts the process for a Python policy. The error texts of such a process already
            contain the name of the policy.
    """

    def __init__(
        self,
        name: str,
        stream: StreamId,
        spec_json: str,
        parameters: Mapping[str, Any],
        source: ProcessSource,
        journal: Callable[[], AsyncIterator[Event]],
        limits: Limits,
        then: str,
        tell: Callable[[bool, int], None] = lambda here, again: None,
        clock: Callable[[], float] = lambda: 0.0,
        *,
        own: bool = False,
    ) -> None:
        self._name = name
        self._stream = stream
        self._spec_json = spec_json
        self._parameters = json.dumps(dict(parameters))
        self._source = source
        self._journal = journal
        self._limits = limits
        self._then = then
        self._tell = tell
        self._clock = clock
        self._own = own
        self.recorded: RecordedAnswer | None = None
        """The last answer with the payload of its record, so that it is encoded only once; None: there was no answer."""
        self._connection: PolicyConnection | None = None
        self._memory = ""
        self._answered = 0
        self._asked: pb.UpCall | None = None
        self._changes = StateDelta()
        self._alone_since: float | None = None
        self._took = 0.0

    @property
    def quick(self) -> bool:
        """True if an answer is expected within `QUICK_SECONDS`: a process is connected, and its last answer was that quick."""
        return self._connection is not None and not self._connection.closed and self._took < QUICK_SECONDS

    @property
    def absent(self) -> Reason | None:
        """Why the policy waits for a process; None: it does not wait, or has waited for less than `_TOLD_SECONDS`."""
        if self._alone_since is None or (waited := time.monotonic() - self._alone_since) < _TOLD_SECONDS:
            return None
        absent, code = self._source.absent, ReasonCode.POLICY_PROCESS_AWAITED
        return Reason.of(code, absent=absent, waited=waited, seconds=self._limits.absence)

    async def answer(
        self, stream: Stream, call: UpCall, settled: AbstractAsyncContextManager[Any]
    ) -> PolicyAnswered | PolicyFailed:
        """Send one up-call to a process and return its answer. The state of the stream must not change before it returns.

        If the process is lost, a new process gets the up-call, after its state is rebuilt.

        Args:
            stream: The stream.
            call: The up-call.
            settled: A lock that is acquired, and released again, before the journal is read. Once it was acquired, the
                journal contains the events that led to the up-call.

        Returns:
            The answer, or a failure that pauses the experiment. The failure has `unheard` True if no process answered.
        """
        losses, failures, output = 0, 0, ""
        backoff, away_since = Backoff(), 0.0
        while True:
            try:
                return await self._answer(stream, call, settled)
            except (Unavailable, TimedOut) as error:  # AppStat, which has the journal and the code.
                await self.give_up()
                failures, away_since = failures + 1, away_since or time.monotonic()
                if time.monotonic() - away_since > self._limits.absence:
                    return _failure(call, self._not_restored(error))
                wait = backoff.wait(failures, random.Random())
                _LOG.warning("experiment %s: appstat is away (%s), again in %.1f s", self._stream, error, wait)
                await asyncio.sleep(wait)
            except ConnectionLost:
                losses, output = losses + 1, self._source.last_output
                _LOG.warning("experiment %s: the process of its policy %s went away", self._stream, self._name)
            except _GivenUpError as error:
                await self.give_up()
                return _failure(call, error.reason)
            if losses == MOST_LOSSES:
                await self.give_up()
                reason = Reason.of(
                    ReasonCode.POLICY_PROCESS_LOST,
                    policy=self._name,
                    losses=losses,
                    up_call=call.number,
                    call=type(call.call).__name__,
                    output=output or None,
                )
                return _failure(call, reason)

    async def give_up(self) -> None:
        """Close the connection, end the process if the scheduler started it, and discard the state of the process.

        The state of the next process is rebuilt from the journal.
        """
        self._memory = ""
        if self._connection is not None:
            self._connection.close(TimedOut(f"policy {self._name} was given up on {self._stream}; dial in again"))
            await self._source.restart()
            self._connection = None  # After the restart: if it is cancelled, the next call repeats it.

    async def close(self) -> None:
        """Close the connection and the source of processes. The policy must not be used afterwards."""
        self._memory = ""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        await self._source.close()

    # -------------------------------------------------------------------------------------------------------- one attempt

    async def _answer(
        self, stream: Stream, call: UpCall, settled: AbstractAsyncContextManager[Any]
    ) -> PolicyAnswered | PolicyFailed:
        connection = self._connection
        if connection is None or connection.closed:
            self._connection = None
            connection = await self._next_seat()
            try:
                async with settled:
                    pass
            except BaseException:  # Nobody waits for the answer any more.
                self._source.give_back(connection)
                raise
            self._connection = connection
            remembered = self._memory
            differs = await self._welcome(connection, call)
            self._tell(True, call.number - 1 if self._memory != remembered else 0)
            connection.on_lost(lambda: self._tell(False, 0))
            if differs is not None:
                return PolicyFailed(call.at, call.stream, call.number, differs)
        if self._asked is None or self._asked.number != call.number:
            self._asked = self._changes.up_call(stream, call)
        began = time.monotonic()
        await self._send(connection, self._asked)
        answer = await self._receive(connection, call, most_commands(len(stream.jobs)))
        self._took = time.monotonic() - began
        self._answered = call.number
        return answer

    async def _next_seat(self) -> PolicyConnection:
        self._alone_since = time.monotonic()
        coming = asyncio.ensure_future(self._source.take(self._stream))
        try:
            return await within(self._limits.absence, coming)
        except asyncio.CancelledError:
            if not coming.cancelled() and coming.done() and coming.exception() is None:  # It came just then.
                self._source.give_back(coming.result())
            raise
        except TimeLimitExceeded:
            reason = Reason.of(
                ReasonCode.POLICY_PROCESS_ABSENT,
                policy=self._name,
                absent=self._source.absent,
                seconds=self._limits.absence,
                then=self._then,
            )
            raise _GivenUpError(reason) from None
        except (Unavailable, TimedOut):
            raise
        except HopyardError as error:
            code = ReasonCode.POLICY_PROCESS_FAILED
            raise _GivenUpError(Reason.of(code, policy=self._name, error=str(error), then=self._then)) from None
        finally:
            self._alone_since = None

    async def _welcome(self, connection: PolicyConnection, call: UpCall) -> Reason | None:
        """Bring a newly connected process to the state before an up-call.

        It uses the state that the process still has from an earlier connection, or repeats all earlier up-calls.

        Args:
            connection: The connection of the process.
            call: The up-call that follows.

        Returns:
            The reason for a pause if a repeated answer differs from the recorded one, else None.
        """
        greeting = connection.greeting
        asked = self._asked.number if self._asked is not None else 0
        if (
            self._memory
            and greeting.memory == self._memory
            and (greeting.answered == self._answered or greeting.answered == asked == call.number)
        ):
            await connection.send(self._welcoming(greeting.answered, self._memory))
            return None
        memory = secrets.token_hex(8)
        self._memory, self._asked, self._answered = "", None, 0  # A partly rebuilt state must not count as remembered.
        self._changes = StateDelta(curves=greeting.curves)
        await connection.send(self._welcoming(0, memory))
        if call.number == 1:
            self._memory = memory
            return None
        _LOG.info("experiment %s: %d up-calls are repeated to policy %s", self._stream, call.number - 1, self._name)

        async def send(message: pb.UpCall) -> None:
            await self._send(connection, message)

        async def hear(told: UpCall) -> PolicyAnswered | PolicyFailed:
            found = await self._receive(connection, told)
            self._answered = told.number
            return found

        try:
            found = await repeat_up_calls(self._journal(), call.number, self._changes, send, hear)
        except (_GivenUpError, Unavailable, TimedOut):
            raise
        except HopyardError as error:
            raise _GivenUpError(self._not_restored(error)) from error
        self._memory = memory
        return objection(found) if found is not None else None

    async def _send(self, connection: PolicyConnection, message: pb.UpCall) -> None:
        """Send an up-call to the process.

        Raises:
            ConnectionLost: The connection has ended.
            _GivenUpError: The up-call is larger than a message may be.
        """
        response = pb.DriveResponse(up_call=message)
        if (size := response.ByteSize()) > MAX_MESSAGE_BYTES:
            code, kind = ReasonCode.POLICY_UP_CALL_TOO_LARGE, str(message.WhichOneof("call"))
            number, most = message.number, MAX_MESSAGE_BYTES
            raise _GivenUpError(
                Reason.of(code, policy=self._name, up_call=number, call=kind, found_bytes=size, most_bytes=most)
            )
        await connection.send(response)

    def _not_restored(self, error: HopyardError) -> Reason:
        if isinstance(error, DataLoss | RecordError):
            return Reason.of(ReasonCode.JOURNAL_UNREADABLE, error=str(error))
        return Reason.of(ReasonCode.POLICY_PROCESS_NOT_RESTORED, policy=self._name, error=str(error))

    def _welcoming(self, answered: int, memory: str) -> pb.DriveResponse:
        welcome = pb.PolicyWelcome(
            spec_json=self._spec_json,
            experiment=self._stream,
            parameters_json=self._parameters,
            memory=memory,
            answered=answered,
        )
        return pb.DriveResponse(welcome=welcome)

    async def _receive(
        self, connection: PolicyConnection, call: UpCall, most: int | None = None
    ) -> PolicyAnswered | PolicyFailed:
        """Wait for the answer to an up-call.

        Args:
            connection: The connection of the process.
            call: The up-call.
            most: Maximum number of commands in the answer; None: the up-call is repeated, and there is no limit.

        Returns:
            The answer, or a failure of the policy if the answer is invalid.

        Raises:
            ConnectionLost: The connection ended before the answer.
            _GivenUpError: The process took too long or sent a message of another kind.
        """
        try:
            said = await within(self._limits.answer, connection.receive())
        except TimeLimitExceeded:
            raise _GivenUpError(took_too_long(self._name, self._limits.answer, call, again=most is None)) from None
        what = said.WhichOneof("message")
        if what != "answer" or said.answer.number != call.number:
            found = f"{what} {said.answer.number}" if what == "answer" else what
            code = ReasonCode.POLICY_PROCESS_CONFUSED
            raise _GivenUpError(Reason.of(code, policy=self._name, found=str(found), up_call=call.number))
        if self._own and said.answer.error:
            reason = Reason.of(ReasonCode.POLICY_PROCESS_ERROR, error=brief(said.answer.error))
            return PolicyFailed(call.at, call.stream, call.number, reason)
        recorded = answered(self._name, call, said.answer, most, at=max(call.at, self._clock()))
        if isinstance(recorded, PolicyFailed):
            return recorded
        self.recorded = recorded
        return recorded.event


class _GivenUpError(HopyardError):
    """Raised when an up-call fails and is not repeated in a new process.

    No process connected or answered in time, a message was too large or not expected, or the process could not be started.
    The process is not used any more, and the experiment is paused.

    Attributes:
        reason: The reason of the failure.
    """

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


def answered(
    name: str, call: UpCall, message: pb.Answer, most: int | None = None, at: float | None = None
) -> RecordedAnswer | PolicyFailed:
    """Convert the answer of a process into an event, equal to the event that a later read of the journal returns.

    Args:
        name: The policy's name for people.
        call: The up-call that is answered.
        message: The answer of the process.
        most: Maximum number of commands; None: no limit.
        at: Unix time in seconds of the answer; None: the time of the up-call.

    Returns:
        The answer; or, for an error, an invalid answer or more than `most` commands, a failure of the policy.
    """
    if message.error:
        return PolicyFailed(call.at, call.stream, call.number, _invalid(name, call, brief(message.error)))
    try:
        if most is not None and len(message.commands) > most:
            found = len(message.commands)
            raise InvalidInput(f"the answer has {found} commands; at most {most} are allowed, the others in later ones")
        if wrong := too_large(message.ByteSize()):
            raise InvalidInput(wrong)
        said = answer_from_proto(message)
        return as_recorded(
            PolicyAnswered(call.at if at is None else at, call.stream, said.answer, said.demand, said.gang, said.nodes)
        )
    except (InvalidInput, TypeError, ValueError) as error:
        return PolicyFailed(call.at, call.stream, call.number, _invalid(name, call, str(error)))


def _invalid(name: str, call: UpCall, error: str) -> Reason:
    kind = type(call.call).__name__
    return Reason.of(ReasonCode.POLICY_ANSWER_INVALID, policy=name, up_call=call.number, call=kind, error=error)


def _failure(call: UpCall, reason: Reason) -> PolicyFailed:
    return PolicyFailed(call.at, call.stream, call.number, reason, unheard=True)
