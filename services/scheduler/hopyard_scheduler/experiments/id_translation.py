"""Translation of an experiment's id in its events, for an import under a new id. Some events contain the id more than once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from hopyard.policy.vocabulary import BillRun, CreateJob, ExperimentId, ForkJob, RunKey, StreamId
from hopyard_engine.core.events import (
    JobOperated,
    JobsRetried,
    NodeBack,
    Operated,
    PolicyAnswered,
    Requested,
    StreamEvent,
    TimerElapsed,
    Updated,
)
from hopyard_engine.core.state.timers import EndTimer, IdleTimer

C = TypeVar("C")


def renamed(event: StreamEvent, old: str, new: str) -> StreamEvent:
    """Return an event with the id `old` of its experiment replaced by `new`.

    The experiment must be the only one of its stream. Texts of people and policies (reasons, tickets, parameters) stay
    unchanged.
    """
    changes: dict[str, Any] = {"stream": new}
    match event:
        case NodeBack():
            keys = {"runs": event.runs, "lost": event.lost, "discarded": event.discarded}
            changes |= {name: _keys(found, new) for name, found in keys.items()}
        case Operated() | Updated() | Requested() | JobsRetried() if event.experiment == old:
            changes["experiment"] = new
        case TimerElapsed() if event.ticket == EndTimer(ExperimentId(old)).ticket:
            changes["ticket"] = EndTimer(ExperimentId(new)).ticket
        case TimerElapsed() if event.ticket == IdleTimer(ExperimentId(old)).ticket:
            changes["ticket"] = IdleTimer(ExperimentId(new)).ticket
        case PolicyAnswered():
            commands = tuple(_command(command, old, new) for command in event.answer.commands)
            changes["answer"] = replace(event.answer, commands=commands)
        case JobOperated():
            changes["command"] = _command(event.command, old, new)
        case _:
            pass
    return replace(event, **changes)


def _keys(keys: tuple[RunKey, ...], new: str) -> tuple[RunKey, ...]:
    return tuple(key._replace(stream=StreamId(new)) for key in keys)


def _command(command: C, old: str, new: str) -> C:
    if isinstance(command, CreateJob | ForkJob) and command.experiment == old:
        return replace(command, experiment=new)
    if isinstance(command, BillRun):
        return replace(command, wanted=tuple((new if name == old else name, until) for name, until in command.wanted))
    return command
