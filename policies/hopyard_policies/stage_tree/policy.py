"""The policy `stage_tree`: training that several trials have in common at their beginning is done once.

A *trial* is a configuration that a tuner or a client wants trained; a *stage* is a piece of training that some trials need and that one
run does without a stop. In most up-calls the policy decides again which runs continue or end, and which stages start on idle slots.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hopyard.policy import (
    CONTINUE,
    ENDLESS,
    AnswerReady,
    Cluster,
    CurvePoint,
    Decision,
    ExperimentChange,
    ExperimentView,
    GeneratorExhausted,
    IterationFinish,
    JobCreated,
    JobState,
    JobView,
    Policy,
    PredictionReady,
    RequestMade,
    RunEnd,
    ShareChange,
    SlotsChange,
    TimerFired,
    Verdict,
    hears_statistics,
)
from hopyard.policy.rungs import Rung
from hopyard.policy.stages import StageView
from hopyard.policy.vocabulary import (
    AmendRun,
    AnswerJob,
    BillRun,
    CreateJob,
    KeepSnapshots,
    StartJob,
    SuspendJob,
    TerminateJob,
)
from hopyard_policies.inner_policy.factory import made, version_with
from hopyard_policies.inner_policy.progress import Progress
from hopyard_policies.stage_tree import tree_view
from hopyard_policies.stage_tree.dispatch import Dispatch, own_snapshots
from hopyard_policies.stage_tree.plan import PlannedTrial, SearchPlan
from hopyard_policies.stage_tree.prefix_equality import BySequences, NoSharing
from hopyard_policies.stage_tree.requests import Requests
from hopyard_policies.stage_tree.snapshot_retention import SnapshotRetention
from hopyard_policies.stage_tree.state import PolicyState
from hopyard_policies.stage_tree.tuners import Tuners

_OWN = (StartJob, AmendRun, SuspendJob, TerminateJob, AnswerJob, BillRun, KeepSnapshots)

_LAST_SECONDS = 1.0
"""Seconds after the first request of a client's call after which the policy decides without the call's last request."""


class StageTreePolicy(Policy):
    """Trains common prefixes of trials once (Hippo): one run trains each stage of their tree, others start from its snapshot.

    A tuner, which is another policy, decides up to which position each trial is trained. It sees one virtual slot for each
    trial; starting a trial there creates a request. This policy decides how to serve the requests and computes the stage tree
    again in each up-call: everything requested, without what is trained and saved or being trained.

    Stages are ordered by level: the longest training time from a stage to the end of any path through it. A run trains the
    whole path of one trial, saves where other trials branch off, and gives up its slot when another stage's level is higher by
    more than a quantum: a number of seconds that this policy computes from the measured cost of a switch and the remaining work.
    The quantum grows with the cost of a switch, so with expensive snapshots the order approaches the paper's critical paths.

    Args:
        tuner: The name of a policy, or a mapping with `name` and its parameters.
        share: False: every trial trains alone.
        width: The number of trials that the tuner may train at a time, at least 1, effectively at most 1000; None: all,
            up to 1000.
        save_every: Save every so many units, at least 1, so that later trials find a snapshot near the position where
            they branch off; None: save only where known trials branch off.
        train_best_further: Units, at least 0, by which the best completed trial is trained beyond its end when the
            tuner has finished. A separate job continues its training; 0: none does.

    Raises:
        ValueError: An argument is out of range, or there is no such tuner.
    """

    forks = True

    def __init__(
        self,
        tuner: str | Mapping[str, Any] = "default",
        share: bool = True,
        width: int | None = None,
        save_every: int | None = None,
        train_best_further: int = 0,
    ) -> None:
        for name, value in (("width", width), ("save_every", save_every)):
            if value is not None and (type(value) is not int or value < 1):
                raise ValueError(f"{name} is {value!r}; it must be a whole number of at least 1, or none")
        if not isinstance(share, bool):
            raise ValueError(f"share is {share!r}; it must be true or false")
        if type(train_best_further) is not int or not 0 <= train_best_further < ENDLESS:
            raise ValueError(
                f"train_best_further is {train_best_further!r}; it must be a whole number of units in 0..{ENDLESS - 1}"
            )
        self._further = train_best_further
        self._best: dict[str, str] = {}  # By job that trains a best trial further: that trial.
        self._chosen: set[str] = set()  # Experiments for which the best trial was chosen.
        self._timers: set[str] = set()
        requests = Requests()
        self._tuners = Tuners(lambda: made(tuner, StageTreePolicy), width, requests.states)
        first = self._tuners.first
        self.version = version_with(self, first)
        self.every_iteration = first.every_iteration or hears_statistics(first)
        self.ends_jobs = False
        self.generator = first.generator
        self._share = self.shares = share
        # A fork needs the snapshot at its position; other trials can train again from an earlier snapshot.
        self.rebuilds = share and not self._tuners.copies
        self._books = PolicyState(
            self._new_plan(), self._tuners, requests, save_every, SnapshotRetention(self.rebuilds)
        )

    # ---------------------------------------------------------------------------------------------------------- up-calls

    def allocate_jobs(self, cluster: Cluster) -> None:
        """Decide which runs continue, and start runs on the idle slots.

        The engine makes this up-call when slots have become idle or a requested snapshot exists.
        """
        self._turn(cluster)

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        """Decide again which runs continue and what starts on idle slots; return the decision for the run at the boundary.

        The decision states whether the run continues, and up to which position, or leaves its slot.
        """
        job = cluster.jobs[event.job]
        run = self._books.runs.get(event.job)
        if run is None or run.leaving or job.state is JobState.SUSPENDING or event.report.finished:
            self._turn(cluster)
            return CONTINUE if event.at_until else Decision.proceed(event.position + 1)
        return self._turn(cluster, event)

    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        """Record the end of a run, then decide again which runs continue and what starts on idle slots."""
        known = self._books.over(run.job, run.position)
        if known is not None:
            self._books.times.run_over(run.job, known.began, cluster.now, known.start, cluster.curve(run.job))
        job = cluster.jobs[run.job]
        if job.state is JobState.COMPLETED:
            self._books.completed.add(job.id)
            self._books.plan.mark_changed(job.id)
        if job.state.ended:
            self._books.keeping.ended(job.id)
        self._look(cluster, job)
        self._turn(cluster)

    def on_job_created(self, cluster: Cluster, created: JobCreated) -> None:
        """Add the new trial to the search plan, then decide again which runs continue and what starts on idle slots."""
        self._begin(cluster)
        job = cluster.jobs[created.job]
        if job.id in self._best:
            self._books.requests.add(job)
        else:
            self._tuners.hear(cluster, created)
        self._books.plan.add(self._trial(cluster, job))
        self._turn(cluster)

    def on_request(self, cluster: Cluster, request: RequestMade) -> None:
        """Add the trial that a client requested to the search plan, and start its training when slots are idle.

        If other jobs have done that training already, the request is answered with their results without a run. A client's call may
        contain several requests; runs are started only after the last one. If the last one is lost because the scheduler fails, a
        timer starts them.
        """
        self._begin(cluster)
        job = cluster.jobs[request.job]
        self._books.requests.add(job)
        self._books.plan.add(self._trial(cluster, job))
        if not request.more:
            self._turn(cluster)
        elif not self._timers:
            self._timers.add(cluster.wake_at(cluster.now + _LAST_SECONDS))

    def on_generator_exhausted(self, cluster: Cluster, exhausted: GeneratorExhausted) -> None:
        """Pass the up-call to the tuner that it concerns, then decide again which runs continue and what starts on idle slots."""
        self._tuners.hear(cluster, exhausted)
        self._turn(cluster)

    def on_prediction(self, cluster: Cluster, prediction: PredictionReady) -> None:
        """Pass the prediction to the tuner that requested it, then decide again which runs continue and what starts on idle slots."""
        self._tuners.hear(cluster, prediction)
        self._turn(cluster)

    def on_timer(self, cluster: Cluster, timer: TimerFired) -> None:
        """Pass the timer to the tuner that set it, then decide again which runs continue and what starts on idle slots.

        A timer that this policy set in `on_request`, in case a client's last request is lost, is not passed to a tuner.
        """
        if timer.ticket in self._timers:
            self._timers.remove(timer.ticket)
        else:
            self._tuners.hear(cluster, timer)
        self._turn(cluster)

    def on_answer(self, cluster: Cluster, answer: AnswerReady) -> None:
        """Pass the answer to the tuner that made the request, then decide again which runs continue and what starts on idle slots.

        An answer to an amendment, a request of this policy to change the end or the save points of a run, is recorded instead.
        """
        if self._tuners.owns(answer.ticket):
            self._tuners.hear(cluster, answer)
        elif answer.ticket in self._books.amends:
            accepted = isinstance(answer.result, dict) and answer.result.get("accepted") is True
            self._books.amended(answer.ticket, accepted)
        self._turn(cluster)

    def on_refused(self, cluster: Cluster, verdict: Verdict) -> None:
        """Undo the effect of a refused command of this policy, or pass the refusal to the tuner that submitted the command."""
        command = verdict.command
        if isinstance(command, StartJob):
            self._books.runs.pop(command.job, None)
        elif isinstance(command, AmendRun):
            self._books.amended(command.ticket, False)
        elif isinstance(command, CreateJob) and command.job in self._best:
            del self._best[command.job], self._books.requests.states[command.job]
            self._chosen.discard(command.experiment)
        elif not isinstance(command, _OWN):
            self._tuners.hear(cluster, verdict)

    def on_share_change(self, cluster: Cluster, change: ShareChange) -> None:
        """Decide again which runs continue and what starts on idle slots, because the number of usable slots has changed."""
        self._turn(cluster)

    def on_slots_change(self, cluster: Cluster, change: SlotsChange) -> None:
        """Update the known snapshots, then decide again which runs continue and what starts on idle slots.

        Snapshots may have been lost or have become available with a slot.
        """
        for job in cluster.open_jobs():
            self._look(cluster, job)
        self._turn(cluster)

    def on_experiment_change(self, cluster: Cluster, change: ExperimentChange) -> None:
        """Apply a change of an experiment, such as a new maximum position, and pass it to the experiment's tuner.

        Then decide again which runs continue and what starts on idle slots. The search plan is rebuilt if trials become longer. The
        results of earlier experiments are added if an experiment joined.
        """
        self._replan(cluster)
        if change.change == "joined":
            self._load(cluster)
        elif change.change == "extended":
            self._chosen.discard(change.experiment or cluster.experiment.id)
            for trial in [trial for trial in self._books.runs if not cluster.jobs[trial].state.live]:
                # The run ended without a `RunEnd` up-call, because the search was over.
                self._books.over(trial, cluster.jobs[trial].high_water)
        self._books.completed = {job.id for job in cluster.jobs.values() if job.state is JobState.COMPLETED}
        self._tuners.mark_changed()
        self._tuners.hear(cluster, change)
        self._turn(cluster)

    def demand(self, cluster: Cluster) -> int:
        """Return the number of slots in use, plus those for stages that could start and for trials that tuners could create."""
        return self._books.could_use

    def review(self, terms: ExperimentView) -> str:
        """Return the remarks of the tuner, the inner policy, on an experiment; empty: no remarks.

        Raises:
            ValueError: The tuner rejects the experiment, or this policy has the parameter `train_best_further`, but the experiment
                has no maximum position.
        """
        most = ENDLESS - 1 - self._further
        if self._further and terms.max_position > most:
            raise ValueError(
                f"train_best_further needs stop.max_iterations, at most {most}: the best is trained beyond it"
            )
        return self._tuners.first.review(terms)

    def rungs(self, cluster: Cluster) -> tuple[Rung, ...] | None:
        """Return the rungs of all tuners; None: at least one tuner has no rungs."""
        return self._tuners.rungs(cluster)

    def stages(self, cluster: Cluster) -> tuple[StageView, ...]:
        """Return the whole stage tree for display, including finished stages."""
        return tree_view.stages(self._books, cluster)

    # --------------------------------------------------------------------------------------------------------- the plan

    def _new_plan(self) -> SearchPlan:
        return SearchPlan(BySequences() if self._share else NoSharing())

    def _replan(self, cluster: Cluster) -> None:
        """Rebuild the search plan if the maximum position of any job differs from that in the plan.

        Trials that were equal up to the old maximum position may diverge beyond it.
        """
        jobs = [job for job in cluster.jobs.values() if job.id in self._books.plan]
        if all(self._books.plan[job.id].limit == job.max_position for job in jobs):
            return
        self._books.replant(self._new_plan())
        self._load(cluster)
        for job in jobs:
            self._books.plan.add(self._trial(cluster, job))
        for job in jobs:
            self._look(cluster, job)

    def _begin(self, cluster: Cluster) -> None:
        if not self._books.plan.root.children:
            self._load(cluster)

    def _load(self, cluster: Cluster) -> None:
        """Add the trials and snapshots of earlier experiments to the search plan, except those that it contains."""
        plan = self._books.plan
        for job in cluster.earlier.values():
            if job.id not in plan:
                plan.add(self._alone(cluster, job))
                plan.trained(job.id, job.high_water)
                self._books.times.trained(job.id, 0, cluster.curve(job.id))
            for position in cluster.snapshots(job.id):
                if position <= plan[job.id].limit:
                    plan.saved(job.id, position)

    def _look(self, cluster: Cluster, job: JobView) -> None:
        """Record in the search plan how far a job has trained and which snapshots it has saved."""
        plan = self._books.plan
        if job.id not in plan:
            return
        limit = plan[job.id].limit
        plan.trained(job.id, min(job.high_water, limit))
        for position in own_snapshots(cluster, job.id):
            if 0 < position <= limit:
                plan.saved(job.id, position)

    def _trial(self, cluster: Cluster, job: JobView) -> PlannedTrial:
        """Return the trial (for the search plan) of a job.

        A forked trial is equal to its parent up to the fork. The trial of a job that continues the best completed trial is equal to
        the best trial up to the position at which the best trial is complete.
        """
        if job.id in self._best:
            return self._books.plan[self._best[job.id]].longer(job.id, job.max_position)
        state = self._tuners.state(job.id)
        if state is not None and state.parent:
            parent = self._books.plan[state.parent]
            return parent.forked(job.id, state.fork_position, job.hyperparameters, job.max_position)
        return self._alone(cluster, job)

    def _alone(self, cluster: Cluster, job: JobView) -> PlannedTrial:
        """Return a trial that starts from position 0.

        It may share training with the trials of all experiments that train equal configurations in the same way (the same
        `ExperimentView.plan`). If the tuners fork trials, it may share training only with trials of its own experiment.
        """
        terms = cluster.experiments.get(job.experiment)
        plan = terms.plan if terms is not None and not self._tuners.copies else ""
        return PlannedTrial(job.id, ((job.max_position, job.hyperparameters),), plan or job.experiment)

    # ----------------------------------------------------------------------------------------------------------- turns

    def _turn(self, cluster: Cluster, event: IterationFinish | None = None) -> Decision:
        """Update the known progress, let the tuners decide, and submit the commands that end, change and start runs (`Dispatch`).

        Args:
            cluster: The view of the up-call; receives the commands.
            event: The boundary at which a run waits; None: no run waits.

        Returns:
            The decision for the run of the event; CONTINUE without an event.
        """
        jobs = cluster.jobs
        for trial in self._books.runs:
            self._look(cluster, jobs[trial])
        progress = _Progress(self._books, cluster)
        self._tuners.turn(cluster, progress)
        self._books.requests.turn(jobs, progress)
        for terms in cluster.experiments.values() if self._further else ():
            if terms.running and terms.id not in self._chosen and self._tuners.rest(cluster, terms.id):
                self._train_further(cluster, progress, terms)
        return Dispatch(self._books, cluster, event).decide()

    def _train_further(self, cluster: Cluster, progress: Progress, terms: ExperimentView) -> None:
        """Create a job that continues the best completed trial of an experiment beyond its end, if any trial is completed.

        The best trial is the one with the best last value of the metric. Trials without a finite value are left out.

        Args:
            cluster: The view of the up-call; receives the command.
            progress: The known progress of trials.
            terms: The experiment.
        """
        best, winner, metric = -math.inf, "", terms.metric
        for state in self._tuners.states_of(terms.id).values():
            if state.ended is not JobState.COMPLETED or state.position < state.limit:
                continue
            points = [point for point in progress.curve(state.id) if metric in point.metrics]
            value = terms.rated(points[-1].metrics[metric] if points else math.nan)
            if value > best:
                best, winner = value, state.id
        if winner:
            job = cluster.jobs[winner]
            limit = job.max_position + self._further
            further = cluster.create_job(job.hyperparameters, experiment=job.experiment, limit=limit)
            self._best[further] = winner
            self._chosen.add(terms.id)
            self._books.requests.expect(further)


class _Progress:
    """The progress of trials at the moment of an up-call, by any job that trained them; implements `Progress`."""

    def __init__(self, books: PolicyState, cluster: Cluster) -> None:
        self._plan, self._completed = books.plan, books.completed
        self._cluster, self._jobs = cluster, cluster.jobs
        self._curves: dict[str, Sequence[CurvePoint]] = {}

    @property
    def moves(self) -> int:
        """A counter, increased when any trial is trained further or is marked as changed."""
        return self._plan.moves

    def moved(self, trial: str, since: int) -> bool:
        """Return whether a trial may have progressed since the counter `moves` had the value `since`."""
        return self._plan.moved(trial, since)

    def reached(self, trial: str) -> tuple[int, bool]:
        """Return the position up to which any job has trained what a trial trains, and whether the trial is complete.

        A trial is complete if its own job is COMPLETED, or if a COMPLETED job has trained the same. Failed or terminated jobs do
        not make it complete.
        """
        reached, by = self._plan.known(trial, self._plan[trial].limit)
        done = self._complete(trial)
        if not done and by and self._complete(by) and self._jobs[by].position <= reached:
            done = self._plan.leaf(trial) is self._plan.leaf(by)  # The same training has finished in another job.
        return reached, done

    def _complete(self, job: str) -> bool:
        return job in self._completed and self._jobs[job].state is JobState.COMPLETED

    def curve(self, trial: str) -> Sequence[CurvePoint]:
        """Return the learning curve of a trial up to the position that any job has reached on its path, or further.

        The reports are those of the job that has trained the trial's path furthest. Its reports beyond the position where it left
        the path are omitted.
        """
        reached, by = self._plan.known(trial, self._plan[trial].limit)
        if by not in self._curves:
            self._curves[by] = self._cluster.curve(by) if by else ()
        found = self._curves[by]
        if not found or found[-1].position <= reached or self._plan.leaf(trial) is self._plan.leaf(by):
            return found
        return [point for point in found if point.position <= reached]

    def saved(self, trial: str, position: int) -> str | None:
        """Return the id of a job with a snapshot of the trial's state at a position (> 0); None: there is none."""
        owners = self._plan.node(trial, position).saves.get(position, ())
        # Only jobs of this experiment can be forked.
        return next((o for o in owners if o in self._jobs and position in self._cluster.snapshots(o)), None)
