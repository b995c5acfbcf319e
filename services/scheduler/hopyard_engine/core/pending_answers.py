"""Streams whose policies have not answered yet, and the events that wait for the answer.

The policy's answer must be the next record of its stream after the up-call, so no other event may reach the stream in between. The
caller holds back events from outside. Events that the cluster state creates for the stream, such as `NodeLost`, wait here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard_engine.core.effects import Effect, Send, Start
from hopyard_engine.core.events import NodeBack, NodeDraining, NodeLost, PolicyAnswered, PolicyFailed, StreamEvent
from hopyard_engine.core.handlers import node_events, run_messages
from hopyard_engine.core.state.stream import Stream


class Thinking:
    """The streams with an unanswered up-call, and for each the events that wait, in order."""

    def __init__(self) -> None:
        self._waiting: dict[StreamId, list[StreamEvent]] = {}

    def __contains__(self, experiment: object) -> bool:
        return experiment in self._waiting

    def __iter__(self) -> Iterator[StreamId]:
        return iter(self._waiting)

    def begin(self, experiment: StreamId) -> None:
        """Marks that a stream waits for its policy's answer: `keep` holds its events back from now on."""
        self._waiting.setdefault(experiment, [])

    def end(self, experiment: StreamId) -> list[StreamEvent]:
        """Ends the wait of a stream and returns the events that were held back, in order."""
        return self._waiting.pop(experiment, [])

    def keep(self, event: StreamEvent) -> bool:
        """Holds an event back if its stream waits for an answer. Returns whether it did."""
        waiting = self._waiting.get(event.stream)
        if waiting is None:
            return False
        waiting.append(event)
        return True

    def concerns(self, experiment: StreamId, node: str) -> bool:
        """Returns whether a held-back event of a stream changes the state of a node (`NodeLost`, `NodeBack`, `NodeDraining`)."""
        waiting = self._waiting.get(experiment, ())
        return any(isinstance(event, NodeLost | NodeBack | NodeDraining) and event.node == node for event in waiting)

    def doomed(self, key: RunKey, node: str) -> bool:
        """Returns whether a held-back event says that a run's process on a node is lost. Its stream does not know it yet."""
        return any(
            (isinstance(event, NodeLost) and event.node == node) or (isinstance(event, NodeBack) and key in event.lost)
            for event in self._waiting.get(key.stream, ())
        )


def answers(stream: Stream, event: StreamEvent) -> bool:
    """Returns whether an event is the answer to the up-call in flight of a stream."""
    number = (
        event.answer.number
        if isinstance(event, PolicyAnswered)
        else event.number
        if isinstance(event, PolicyFailed)
        else None
    )
    return number is not None and stream.conversation.is_answered_by(number)


def late(stream: Stream, event: StreamEvent, at: float) -> StreamEvent:
    """Returns an event that was held back, updated: its time is not before the answer's.

    In a `NodeBack` event, the runs that the answer placed on missing slots are added to `lost`, and `ship` is determined again.
    """
    event = replace(event, at=max(event.at, at))
    if isinstance(event, NodeBack):
        more = node_events.on_slots(stream, frozenset(event.gone))
        ship = node_events.not_shipped_any_more(stream, event.node, frozenset(event.runs), frozenset(event.snapshots))
        event = replace(event, lost=(*event.lost, *(key for key in more if key not in event.lost)), ship=ship)
    return event


def unsent(stream: Stream, node: str, effects: Iterable[Effect]) -> tuple[RunKey, ...]:
    """Returns the stream's processes on a node that these effects start: the node has not received the commands yet."""
    sends = [effect for effect in effects if isinstance(effect, Send) and isinstance(effect.body, Start)]
    return tuple(send.run for send in sends if send.run.stream == stream.id and send.node == node)


def in_vain(stream: Stream, send: Send) -> bool:
    """Returns whether a command is for a process that no longer exists."""
    job = stream.jobs.get(send.run.job)
    run = run_messages.current_run(job, send.run.attempt) if job is not None else None
    return run is None or run.ranks[send.run.rank].gone
