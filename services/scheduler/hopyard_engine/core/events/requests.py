"""Events for requests of persons and clients to a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hopyard.policy.vocabulary import Command, ExperimentId, Hyperparameters, StreamId


@dataclass(frozen=True, slots=True)
class Requested:
    """A client requests that a configuration is trained up to a position. A request with a known ticket has no effect.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        ticket: Identifies the request within the experiment.
        hyperparameters: The configuration.
        position: The position up to which to train it.
        experiment: Id of the experiment; empty: the first experiment of the stream.
        more: Number of requests that follow from the same call of the client.
    """

    at: float
    stream: StreamId
    ticket: str
    hyperparameters: Hyperparameters
    position: int
    experiment: ExperimentId = ExperimentId("")
    more: int = 0


@dataclass(frozen=True, slots=True)
class Operated:
    """A person or client requests a change of the state of an experiment, or that its idle time begins again.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        action: "pause" suspends the runs of the experiment, "resume" continues a paused experiment, "stop" ends the experiment as
            STOPPED, "close" as COMPLETED. "keep" restarts the timer that ends an experiment without work after `Settings.idle` seconds.
        experiment: Id of the experiment; empty: the first experiment of the stream.
        ends_if_done: For "pause": whether the experiment ends while it is PAUSED if all its jobs have ended and no more can be created.
            False: it stays PAUSED, as in journals from before this field existed.
    """

    at: float
    stream: StreamId
    action: Literal["pause", "resume", "stop", "close", "keep"]
    experiment: ExperimentId = ExperimentId("")
    ends_if_done: bool = False


@dataclass(frozen=True, slots=True)
class JobOperated:
    """A person sends a command for a job, of the kind that policies send, such as `TerminateJob`.

    If the command ends a job without a run, the policy gets a new `AllocateJobs` up-call, because other jobs may have waited for that
    job.
    """

    at: float
    stream: StreamId
    command: Command


@dataclass(frozen=True, slots=True)
class JobHeld:
    """A person pauses a job (`held` is True) or resumes it (`held` is False).

    The present run of a paused job is suspended at its next boundary. After it the job gets no slot, whatever the policy commands.

    If the job has no run, the policy gets a new `AllocateJobs` up-call.
    """

    at: float
    stream: StreamId
    job: str
    held: bool


@dataclass(frozen=True, slots=True)
class SlotReserved:
    """A client reserves an idle slot of the stream. The policy cannot use the slot until its reservation ends.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        slot: Id of the slot.
        request: Identifies the reservation. A repeated request has no effect while the slot is reserved. Empty: each event is a new
            request.
    """

    at: float
    stream: StreamId
    slot: str
    request: str = ""


@dataclass(frozen=True, slots=True)
class Updated:
    """A person changes the settings of an experiment.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        request: Identifies the change; a repeated change has no effect.
        more_jobs: Number added to `Settings.jobs`. The sum stays below `ENDLESS`, which is not changed.
        max_position: New maximum position, if it is higher than the present one; None: unchanged.
        more_seconds: Seconds added to `Settings.max_seconds`.
        target: New target; None: unchanged.
        weight: New weight; None: unchanged.
        slots: New maximum number of slots; None: unchanged.
        experiment: Id of the experiment; empty: the first experiment of the stream.
        concurrency: New maximum number of jobs that train at the same time; None: unchanged.
        cleared: Names of the limits to remove: "target", "slots", "concurrency".
        metric: New name of the metric, for all experiments of the stream; empty: unchanged.
    """

    at: float
    stream: StreamId
    request: str
    more_jobs: int = 0
    max_position: int | None = None
    more_seconds: float = 0.0
    target: float | None = None
    weight: float | None = None
    slots: int | None = None
    experiment: ExperimentId = ExperimentId("")
    concurrency: int | None = None
    cleared: tuple[str, ...] = ()
    metric: str = ""


@dataclass(frozen=True, slots=True)
class JobsRetried:
    """A person lets failed jobs start again. An ended experiment continues. If one of the jobs cannot start again, none does.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        request: Idempotency key of the retry: after a retry that was not refused, a later request with the same key retries nothing.
        jobs: Ids of the jobs, which belong to one experiment.
        experiment: Id of that experiment.
    """

    at: float
    stream: StreamId
    request: str
    jobs: tuple[str, ...]
    experiment: ExperimentId


@dataclass(frozen=True, slots=True)
class Imported:
    """The stream was imported: all records before this one come from another cluster, whose nodes and slots are not available here.

    Attributes:
        at: Time of the event in seconds since the Unix epoch.
        stream: Id of the stream.
        request: Identifies the import; a repeated import has no effect.
        snapshots: Hashes of the snapshots that were imported into the store. All others are lost.
    """

    at: float
    stream: StreamId
    request: str
    snapshots: tuple[str, ...] = ()
