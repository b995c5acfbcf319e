"""Experiments whose policies think: what the cluster part has for them waits until the answer.

A policy's answer is the next record of its experiment's stream, so nothing may reach the experiment from the up-call to the
answer. The shell keeps back what comes from outside, as if it had not arrived yet. What happens to nodes meanwhile waits here.
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
    """The experiments that wait for an answer, and what waits for them, in order."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[StreamEvent]] = {}

    def __contains__(self, experiment: object) -> bool:
        return experiment in self._waiting

    def __iter__(self) -> Iterator[str]:
        return iter(self._waiting)

    def begin(self, experiment: StreamId) -> None:
        """Its policy thinks from now on."""
        self._waiting.setdefault(experiment, [])

    def end(self, experiment: StreamId) -> list[StreamEvent]:
        """It thinks no more; answers what waited."""
        return self._waiting.pop(experiment, [])

    def keep(self, event: StreamEvent) -> bool:
        """Keeps an event for later; False if its experiment does not think."""
        waiting = self._waiting.get(event.stream)
        if waiting is None:
            return False
        waiting.append(event)
        return True

    def concerns(self, experiment: StreamId, node: str) -> bool:
        """Whether something waits for an experiment that changes what it knows of a node."""
        waiting = self._waiting.get(experiment, ())
        return any(isinstance(event, NodeLost | NodeBack | NodeDraining) and event.node == node for event in waiting)

    def doomed(self, key: RunKey, node: str) -> bool:
        """Whether a run's process on a node is lost already, and only its experiment does not know yet."""
        return any(
            (isinstance(event, NodeLost) and event.node == node) or (isinstance(event, NodeBack) and key in event.lost)
            for event in self._waiting.get(key.stream, ())
        )


def answers(stream: Stream, event: StreamEvent) -> bool:
    """Whether an event is the answer to the up-call that the experiment waits for."""
    number = (
        event.answer.number
        if isinstance(event, PolicyAnswered)
        else event.number
        if isinstance(event, PolicyFailed)
        else None
    )
    return number is not None and stream.conversation.is_answered_by(number)


def late(stream: Stream, event: StreamEvent, at: float) -> StreamEvent:
    """An event that waited, as it is now: no earlier than the answer.

    A node that came back has lost the runs that the answer put where none can be, and ships what is left by now.
    """
    event = replace(event, at=max(event.at, at))
    if isinstance(event, NodeBack):
        more = node_events.on_slots(stream, frozenset(event.gone))
        ship = node_events.not_shipped_any_more(stream, event.node, frozenset(event.runs), frozenset(event.snapshots))
        event = replace(event, lost=(*event.lost, *(key for key in more if key not in event.lost)), ship=ship)
    return event


def unsent(stream: Stream, node: str, effects: Iterable[Effect]) -> tuple[RunKey, ...]:
    """Processes of an experiment on a node that these effects start: the node has not heard of them."""
    sends = [effect for effect in effects if isinstance(effect, Send) and isinstance(effect.body, Start)]
    return tuple(send.run for send in sends if send.run.stream == stream.id and send.node == node)


def in_vain(stream: Stream, send: Send) -> bool:
    """Whether a command goes to a process of the experiment that is gone by now."""
    job = stream.jobs.get(send.run.job)
    run = run_messages.current_run(job, send.run.attempt) if job is not None else None
    return run is None or run.ranks[send.run.rank].gone
