"""One experiment as users see it: settings, budget and state. A stream has one or more experiments."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal

from hopyard.policy.vocabulary import ExperimentId, ExperimentState, Hyperparameters, JobState, Metrics
from hopyard.policy.vocabulary.reasons import Reason
from hopyard_engine.core.events import Updated
from hopyard_engine.core.state_machines.transitions import STORY_LENGTH
from hopyard_engine.core.types import Settings

_PROGRESS = (ExperimentState.RUNNING, ExperimentState.PAUSING, ExperimentState.PAUSED, ExperimentState.ENDING)
"""The state of a group is the first of these that any of its experiments has."""


@dataclass(frozen=True, slots=True)
class GeneratorCall:
    """A recorded call on the generator. When the generator is reopened, the calls that it received are repeated in order.

    Attributes:
        kind: "create", "report" or "final".
        job: Id of the job.
        hyperparameters: For "create", the proposal (None: the generator was exhausted). For "final", the configuration of a job that
            the generator did not propose (None: it proposed it).
        metrics: Reported metrics.
        answered: Whether the result is known. Only a "create" has a result to wait for.
        position: Position of the metrics.
        outcome: Final state of the job ("final").
    """

    kind: Literal["create", "report", "final"]
    job: str
    hyperparameters: Hyperparameters | None = None
    metrics: Metrics = field(default_factory=dict)
    answered: bool = True
    position: int = 0
    outcome: JobState = JobState.COMPLETED


@dataclass(slots=True, eq=False)
class Experiment:
    """An experiment. It may share its stream, policy and slots with other experiments of its group.

    Attributes:
        id: Its id.
        settings: Its settings.
        payload: Data of the caller (specification, bundle).
        created_at: Time of its creation.
        state: Its state.
        reason: Reason of the state; None: there is nothing to say.
        final: Its final state and the reason, once it is ENDING.
        ended_at: Time of its end.
        spent: Unpaused seconds before `running_since`.
        running_since: Time at which its clock was last started; None: the clock is stopped.
        generated: Number of jobs created by its generator or with given hyperparameters.
        exhausted: Whether its generator has no more proposals.
        generator_calls: Calls on its generator, in order.
        told_generator: Number of these calls known to have reached the generator.
        winner: Id of the job that ended it, by reaching the target or by decision of the policy; empty: none.
        best: (job, position, value) of its best finite report.
        wound_up: Whether its jobs were ended or completed after its last run.
        out_of_time: Whether it ends or has ended because `max_seconds` passed, so that its jobs can continue with more time.
        changed: Whether its settings differ from its specification.
        deferred: Changes of settings that are applied when it has ended.
        paused_jobs: Idle jobs that wait until it is resumed, in queue order.
        states: Number of its jobs in each state.
        unable: Nodes on which its program cannot run.
        slot_seconds: Slot time in seconds billed to it up to the last report of each run.
        requested: Job id of each client request by ticket; empty: the policy decides what to do with the request.
        story: Its last state changes, oldest first, for messages.
    """

    id: ExperimentId
    settings: Settings
    payload: Any
    created_at: float
    state: ExperimentState = ExperimentState.RUNNING
    reason: Reason | None = None
    final: tuple[ExperimentState, Reason] | None = None
    ended_at: float | None = None
    spent: float = 0.0
    running_since: float | None = None
    generated: int = 0
    exhausted: bool = False
    generator_calls: list[GeneratorCall] = field(default_factory=list)
    told_generator: int = 0
    winner: str = ""
    best: tuple[str, int, float] | None = None
    wound_up: bool = False
    out_of_time: bool = False
    changed: bool = False
    deferred: list[Updated] = field(default_factory=list)
    paused_jobs: dict[str, None] = field(default_factory=dict)
    states: dict[JobState, int] = field(default_factory=dict)
    unable: set[str] = field(default_factory=set)
    slot_seconds: float = 0.0
    requested: dict[str, str] = field(default_factory=dict)
    story: deque[object] = field(default_factory=lambda: deque(maxlen=STORY_LENGTH))

    @property
    def running(self) -> bool:
        """True if its jobs may be created and started."""
        return self.state is ExperimentState.RUNNING

    @property
    def jobs_left(self) -> int:
        """The number of jobs that may still be created from the generator or with given hyperparameters."""
        return 0 if self.exhausted else max(self.settings.jobs - self.generated, 0)

    @property
    def all_ended(self) -> bool:
        """True if all its jobs are in an end state."""
        return not any(count for state, count in self.states.items() if not state.ended)

    def running_seconds(self, at: float) -> float:
        """Returns the unpaused seconds up to a time."""
        return self.spent + (at - self.running_since if self.running_since is not None else 0.0)

    def end_at(self) -> float | None:
        """Returns the time at which `max_seconds` will have passed, or None if there is no limit or the clock is stopped."""
        if self.settings.max_seconds is None or self.running_since is None:
            return None
        return self.running_since + self.settings.max_seconds - self.spent


def foremost(experiments: list[Experiment]) -> Experiment:
    """Returns the experiment whose state represents the group: a running one if there is any, an ended one only if all have ended."""
    return min(experiments, key=lambda m: _PROGRESS.index(m.state) if m.state in _PROGRESS else len(_PROGRESS))
