"""One experiment as people know it: its terms, its budget and where it stands. A stream of the journal has one or more of them."""

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
"""Of several experiments the one that is furthest in front here says where all of them stand."""


@dataclass(frozen=True, slots=True)
class GeneratorCall:
    """A call on the generator. Those that it took are made again, in order, when it is opened again.

    Attributes:
        kind: "create", "report" or "final".
        job: Whose call it is.
        hyperparameters: What was proposed ("create"; None: it was exhausted), or what a job that it did not propose has
            ("final"; None: one that it did).
        metrics: What was told.
        answered: Whether its outcome is known; a "create" waits for its answer, the others have none.
        position: Where the metrics were measured.
        outcome: How the job ended ("final").
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
    """An experiment that may share its stream, policy and slots with others of its group.

    Attributes:
        id: The experiment's id.
        settings: Its terms.
        payload: The shell's own (specification, bundle).
        created_at: When it was created.
        state: Where it stands.
        reason: Why; None: there is nothing to say.
        final: How it will end, once it is ENDING.
        spent: Unpaused seconds before `running_since`.
        running_since: Since when its time runs; None: it does not.
        generated: Jobs that were created from its generator or with given hyperparameters.
        exhausted: Whether its generator has nothing more.
        generator_calls: Calls on its generator, in the order in which it gets them.
        told_generator: So many of these are known to have reached it.
        winner: The job that it was for, by its target or its policy; empty: none so far.
        best: (job, position, value) of its best finite report.
        wound_up: Whether its jobs were seen to after its last run.
        out_of_time: Whether it ends, or has ended, because its time was over, with jobs that go on when there is more.
        changed: Whether its terms are no longer those of its specification.
        deferred: Changes of its terms that wait for its end.
        paused_jobs: Idle jobs that wait for it to be resumed, in the order in which they waited.
        states: Its jobs by state.
        unable: Nodes on which its program cannot run, whatever the job.
        slot_seconds: Time of slots that was billed to it, up to what its runs said last.
        requested: The job of each of its clients' requests, by their names; empty: the policy makes what it wants of it.
        story: Its newest changes of state, oldest first.
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
        """Whether its jobs may be started and created."""
        return self.state is ExperimentState.RUNNING

    @property
    def jobs_left(self) -> int:
        """Jobs that may still be created from the generator or with given hyperparameters."""
        return 0 if self.exhausted else max(self.settings.jobs - self.generated, 0)

    @property
    def all_ended(self) -> bool:
        """Whether none of its jobs will train again as things stand."""
        return not any(count for state, count in self.states.items() if not state.ended)

    def running_seconds(self, at: float) -> float:
        """Unpaused seconds up to a time."""
        return self.spent + (at - self.running_since if self.running_since is not None else 0.0)

    def end_at(self) -> float | None:
        """When its time is over, if it goes on as now; None: never."""
        if self.settings.max_seconds is None or self.running_since is None:
            return None
        return self.running_since + self.settings.max_seconds - self.spent


def foremost(experiments: list[Experiment]) -> Experiment:
    """The experiment whose state is that of all together: one that runs if any does, an ended one if all are over."""
    return min(experiments, key=lambda m: _PROGRESS.index(m.state) if m.state in _PROGRESS else len(_PROGRESS))
