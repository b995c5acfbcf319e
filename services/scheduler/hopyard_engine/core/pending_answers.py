"""Streams whose policies are computing an answer, and the events that wait for it.

The policy's answer must be the next record of its stream after the up-call, so no other event may reach the stream between the two.
The caller holds back events from outside. Events that the cluster state creates for the stream, such as `NodeLost`, are held back
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard_engine.core.effects import Effect, Send, Start
from hopyard_engine.core.events import NodeBack, NodeDraining, NodeLost, PolicyAnswered, PolicyFailed, StreamEvent
from hopyard_engine.core.handlers import node_events, run_messages
from hopyard_engine.core.state.stream import Stream


class PendingAnswers:
    """The set of streams whose policies are computing an answer, and for each the held-back events, in order.

    It supports `in` and iteration over the stream ids.
    """

    def __init__(self) -> None:
        self._waiting: dict[StreamId, list[StreamEvent]] = {}

    def __contains__(self, experiment: object) -> bool:
        return experiment in self._waiting

    def __iter__(self) -> Iterator[StreamId]:
        return iter(self._waiting)

    def begin(self, stream: StreamId) -> None:
        """Mark that a stream waits for its policy's answer. From now on `keep` holds back its events.

        Does nothing if the stream already waits.
        """
        self._waiting.setdefault(stream, [])

    def end(self, stream: StreamId) -> list[StreamEvent]:
        """Mark that a stream no longer waits, and return the events that were held back, in order; empty if it did not wait."""
        return self._waiting.pop(stream, [])

    def keep(self, event: StreamEvent) -> bool:
        """Hold an event back if its stream waits for an answer. Return whether the event was held back."""
        waiting = self._waiting.get(event.stream)
        if waiting is None:
            return False
        waiting.append(event)
        return True

    def concerns(self, stream: StreamId, node: str) -> bool:
        """Return whether a held-back event of a stream changes the state of `node` (`NodeLost`, `NodeBack` or `NodeDraining`)."""
        waiting = self._waiting.get(stream, ())
        return any(isinstance(event, NodeLost | NodeBack | NodeDraining) and event.node == node for event in waiting)

    def is_lost_by_held_event(self, key: RunKey, node: str) -> bool:
        """Return whether a process of a run on `node` is lost by a held-back event, which its stream has not handled yet."""
        return any(
            (isinstance(event, NodeLost) and event.node == node) or (isinstance(event, NodeBack) and key in event.lost)
            for event in self._waiting.get(key.stream, ())
        )


def answers(stream: Stream, event: StreamEvent) -> bool:
    """Return whether an event is the policy's answer (or failure) for the up-call in flight of a stream."""
    number = (
        event.answer.number
        if isinstance(event, PolicyAnswered)
        else event.number
        if isinstance(event, PolicyFailed)
        else None
    )
    return number is not None and stream.conversation.is_answered_by(number)


def late(stream: Stream, event: StreamEvent, at: float) -> StreamEvent:
    """Return an event that was held back, updated for the state after the policy's answer.

    Its time is not before the answer's. A `NodeBack` event also takes account of the answer: processes that the answer placed on slots
    that the node no longer has (`gone`) are added to the lost ones (`lost`), and the snapshots that the node must be ordered to upload
    (`ship`) are computed from the present state.

    Args:
        stream: The stream, which has handled the answer.
        event: The event.
        at: Time of the answer in seconds since the Unix epoch.
    """
    event = replace(event, at=max(event.at, at))
    if isinstance(event, NodeBack):
        more = node_events.on_slots(stream, frozenset(event.gone))
        ship = node_events.not_shipped_any_more(stream, event.node, frozenset(event.runs), frozenset(event.snapshots))
        event = replace(event, lost=(*event.lost, *(key for key in more if key not in event.lost)), ship=ship)
    return event


def unsent(stream: Stream, node: str, effects: Iterable[Effect]) -> tuple[RunKey, ...]:
    """Return the processes of a stream on `node` whose start commands are among `effects`, so the node has not received them."""
    sends = [effect for effect in effects if isinstance(effect, Send) and isinstance(effect.body, Start)]
    return tuple(send.run for send in sends if send.run.stream == stream.id and send.node == node)


def in_vain(stream: Stream, send: Send) -> bool:
    """Return whether the command in `send` is for a process that no longer exists, so that it need not be sent."""
    job = stream.jobs.get(send.run.job)
    run = run_messages.current_run(job, send.run.attempt) if job is not None else None
    return run is None or run.ranks[send.run.rank].gone
