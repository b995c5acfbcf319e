"""One experiment: its settings, budget and state. A stream has one or more experiments."""

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
"""States that are not final, by precedence: the state of a group is the first of these that any of its experiments has."""


@dataclass(frozen=True, slots=True)
class GeneratorCall:
    """A recorded call on the generator of an experiment. A generator that is created again, after a restart, gets these calls in order.

    Attributes:
        kind: "create" requests a configuration for a new job. "report" passes a report. "final" passes the result of a job that ended.
        job: Id of the job.
        hyperparameters: For "create", the proposed configuration (None: the generator had no more proposals). For "final", the
            configuration of a job that the generator did not propose (None: the generator proposed it).
        metrics: Metrics of the report, or for "final" those of the job's best report.
        answered: Whether the answer is known. Only a "create" call has an answer to wait for.
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
    """Represents an experiment. It may share its stream, policy and slots with other experiments of its group.

    Times are in seconds since the Unix epoch.

    Attributes:
        id: Id of the experiment.
        settings: Settings, including later changes.
        payload: Data of the caller (specification, bundle), which the core only stores.
        created_at: Time of its creation.
        state: State, see `experiment_states`.
        reason: Reason of the state; None: the state needs no explanation.
        final: The final state and its reason, set when the experiment becomes ENDING; None before.
        ended_at: Time of its end; None: it has not ended.
        spent: Seconds that the experiment's clock ran before `running_since`. The clock stops during pauses.
        running_since: Time at which the clock was last started; None: the clock is stopped.
        generated: Number of jobs created by its generator or with given hyperparameters.
        exhausted: Whether its generator has no more proposals.
        generator_calls: Recorded calls on its generator, in order.
        told_generator: Number of calls in `generator_calls`, from the first, that the generator is known to have received.
        winner: Id of the job that ended it, by reaching the target or by decision of the policy; empty: none.
        best: (job id, position, value) of its best finite report; None: there is none.
        measured: Whether a report of one of its jobs contains its metric, finite or not.
        ends_if_done: Whether it ends while it is PAUSED if all its jobs have ended and no more can be created
            (`Operated.ends_if_done` of the last pause).
        generator_failed: Whether the generator could not answer a question, which is repeated when a person resumes the experiment.
        paused_for: The metric for whose absence it was paused last; empty: it was not paused for that.
        first_failures: For each fingerprint of a cause (`Ended.fingerprint`), how often each job, by id, has failed from it in user
            code since the experiment began or was resumed after a pause for such failures; None: a job has reported.
        failed_alike: Fingerprints of the causes for which it was paused.
        wound_up: Whether it is ENDING and its remaining jobs were ended or completed after its last run.
        out_of_time: Whether it ends or has ended because `max_seconds` passed. Then its jobs can continue if it gets more time.
        changed: Whether its settings were changed after its creation.
        deferred: Changes of settings that arrived while it was ENDING. They are applied when it has ended.
        paused_jobs: Ids of the idle jobs that wait until the experiment is resumed, in the order in which they were added.
        states: Number of its jobs in each state.
        unable: Names of the nodes on which its program cannot run.
        slot_seconds: Time billed to it in slot-seconds, up to the last report of each run.
        requested: Id of the job created for each client request, by the request's ticket; empty: no job was created, and the policy
            handles the request.
        story: Its last state changes, oldest first, for error messages.
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
    measured: bool = False
    ends_if_done: bool = False
    generator_failed: bool = False
    paused_for: str = ""
    first_failures: dict[str, dict[str, int]] | None = field(default_factory=dict)
    failed_alike: set[str] = field(default_factory=set)
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
        """Whether the experiment is RUNNING, so that its jobs may be created and started."""
        return self.state is ExperimentState.RUNNING

    @property
    def jobs_left(self) -> int:
        """The number of jobs that may still be created with a proposal of the generator or with given hyperparameters.

        0 if the generator has no more proposals. Without a limit on jobs it is about `ENDLESS`.
        """
        return 0 if self.exhausted else max(self.settings.jobs - self.generated, 0)

    @property
    def all_ended(self) -> bool:
        """Whether all jobs of the experiment are in a final state. True also if it has no jobs."""
        return not any(count for state, count in self.states.items() if not state.ended)

    def running_seconds(self, at: float) -> float:
        """Return how long the experiment's clock has run, without pauses, in seconds.

        `at` is the time up to which it is measured, in seconds since the Unix epoch.
        """
        return self.spent + (at - self.running_since if self.running_since is not None else 0.0)

    def end_at(self) -> float | None:
        """Return the time at which `max_seconds` will have passed, in seconds since the Unix epoch.

        None: there is no limit, or the clock is stopped.
        """
        if self.settings.max_seconds is None or self.running_since is None:
            return None
        return self.running_since + self.settings.max_seconds - self.spent


def foremost(experiments: list[Experiment]) -> Experiment:
    """Return the experiment whose state and reason are shown as those of the group.

    It is a RUNNING experiment if there is one, else a PAUSING, PAUSED or ENDING one, in this order, else an ended one. Among several
    in the same state, or several ended ones, it is the first in the list. The list must not be empty.
    """
    return min(experiments, key=lambda m: _PROGRESS.index(m.state) if m.state in _PROGRESS else len(_PROGRESS))
