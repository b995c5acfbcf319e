"""Descriptions of the events of a stream in text, one line for each event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hopyard.policy.vocabulary import ExperimentState, JobState
from hopyard_engine.core import Core
from hopyard_engine.core.effects import Effect, JobChanged, Noted, Record
from hopyard_engine.core.events import ClusterEvent, Event, RunMessage, SnapshotStored
from hopyard_engine.core.job_ends import shown_end
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.explain.events import (
    EventContext,
    EventPart,
    before_event,
    name_of,
    of_cluster,
    runs_over,
    sentences,
)

_QUIET = (JobState.CREATING, JobState.STARTING, JobState.RUNNING)


@dataclass(frozen=True, slots=True)
class StoryLine:
    """The description of an event.

    Attributes:
        number: Number of the event in its stream, from 1.
        at: Time of the event in seconds since the Unix epoch.
        kind: Class name of the event.
        parts: Its statements, in order; never empty.
        routine: Whether the only statement is that a snapshot is in the store. A reader may skip such a line, because an earlier line
            describes the snapshot.
    """

    number: int
    at: float
    kind: str
    parts: tuple[EventPart, ...]
    routine: bool = False

    @property
    def text(self) -> str:
        """All statements as one text, separated by semicolons."""
        return "; ".join(part.text for part in self.parts)

    @property
    def jobs(self) -> tuple[str, ...]:
        """The ids of the jobs that the statements are about, without repetition."""
        return tuple(dict.fromkeys(part.job for part in self.parts if part.job))

    def about(self, job: str) -> StoryLine | None:
        """Return the line with only the statements about the job with the id `job`; None: there are none."""
        parts = tuple(part for part in self.parts if part.job == job)
        return replace(self, parts=parts) if parts else None


class Story:
    """Describes the events of one stream. It applies them to a separate core to determine their consequences.

    Attributes:
        experiment: The stream in this core; None: no event has been applied.
    """

    def __init__(self) -> None:
        self._core = Core()
        self._states: dict[str, JobState] = {}
        self._number = 0
        self.experiment: Stream | None = None

    def tell(self, event: Event) -> StoryLine:
        """Apply the next event of the stream and return its description. Cluster events are described without being applied.

        Each `Story` object must get the events of one journal only, in order: those of a stream, which begin with `StreamCreated`, or
        the cluster events. A stream event that is only a repetition is described as ignored.
        """
        self._number += 1
        kind = type(event).__name__
        if isinstance(event, ClusterEvent):
            return StoryLine(self._number, event.at, kind, (of_cluster(event),))
        before = before_event(self.experiment, event)
        effects = self._core.restore(event)
        stream = self.experiment = self._core.streams[event.stream]
        if not effects or not isinstance(effects[0], Record):
            return StoryLine(self._number, event.at, kind, (EventPart("", f"{kind}: a repetition, ignored"),))
        parts = sentences(stream, before, event, effects)
        parts += runs_over(stream, before)
        parts += self._states_changed(stream, before, effects)
        parts += [EventPart("", str(effect.reason)) for effect in effects if isinstance(effect, Noted) and effect.aloud]
        parts += [
            EventPart(
                "",
                f"{name_of(stream, experiment.id)} is {experiment.state.value}{f': {experiment.reason}' if experiment.reason else ''}",
            )
            for experiment in stream.experiments.values()
            if experiment.state is not before.states.get(experiment.id, ExperimentState.RUNNING)
        ]
        stored = event.body if isinstance(event, RunMessage) and isinstance(event.body, SnapshotStored) else None
        routine = stored is not None and not stored.error and len(parts) == 1
        return StoryLine(self._number, event.at, kind, tuple(parts), routine)

    def _states_changed(self, stream: Stream, before: EventContext, effects: Sequence[Effect]) -> list[EventPart]:
        """Return a statement for each state change of a job that the other statements about the event do not contain.

        Args:
            stream: The stream after the event.
            before: The state before the event.
            effects: The effects of the event.
        """
        parts = []
        for name in dict.fromkeys(effect.job for effect in effects if isinstance(effect, JobChanged)):
            job = stream.jobs.get(name)
            if job is None:
                continue
            state, reason = shown_end(job)
            if self._states.get(name) is state:
                continue
            over = name in before.live and stream.live.get(name) is not before.live[name]
            new = name not in self._states or self._states[name] is JobState.CREATING
            self._states[name] = state
            if state not in _QUIET and not over and not (new and state is JobState.PENDING):
                what = "leaves its slot" if state is JobState.SUSPENDING else f"is {state.value}"
                parts.append(EventPart(name, f"job {name} {what}: {reason}"))
        return parts
