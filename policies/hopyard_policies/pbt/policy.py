"""The policy `pbt` (population based training): the worst members are replaced by changed copies of the best.

A *member* is a job of a population. A member *passes* a boundary when it reports at or beyond it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Final

from hopyard.policy import (
    CONTINUE,
    ENDLESS,
    TERMINATE,
    Cluster,
    Decision,
    ExperimentView,
    GeneratorExhausted,
    IterationFinish,
    JobState,
    JobView,
    Policy,
    RunEnd,
    Verdict,
)
from hopyard.policy.vocabulary import CreateJob, ForkJob
from hopyard.space import below
from hopyard_policies.base.job_creation import AT_ONCE, need_at_most, room
from hopyard_policies.base.parameters import need_whole
from hopyard_policies.pbt.explore import closure, explored
from hopyard_policies.pbt.population import Population

_ROUNDS: Final = 30
_DRAWS: Final = 16
"""Number of draws of a copy until it differs from all earlier ones."""


class PbtPolicy(Policy):
    """Population based training (Jaderberg et al., 2017), as the ASHA paper runs it (appendix A.3).

    Jobs form populations of `population` members, with configurations of the experiment's generator. At each multiple
    of `interval`, a boundary, a member saves and is compared with the population's latest results. Two members are compared
    at the last boundary that both have passed, so training longer is no advantage. A member in the worst fraction
    `truncation` is replaced by a copy of a better one, drawn uniformly from the best fraction:

    * **exploit**: a new job is forked from the newest snapshot of the better member, and the worse member is
      terminated;
    * **explore**: each hyperparameter of the copy is resampled with probability `resample`, otherwise perturbed by a
      factor of 0.8 or 1.2 or to an adjacent choice. `frozen` hyperparameters stay. Freeze all that shape the model, or
      the weights do not fit.

    The copy continues from the snapshot's position, and its curve begins with that of its parent: a job is complete at
    `max_iterations`, including the training of its parents.

    No member trains more than `lag` ahead of the slowest member of its population; it waits at a boundary. Slots
    serve the oldest population first, and in it the member with the least training. If a slot would be idle, another
    population starts, as long as the experiment may have more jobs. `stop.jobs` limits the initial members of all
    populations together; copies are not included.

    If the experiment has a `kill_threshold` (the metric value of random guessing), a member that is not better at its first boundary is
    replaced by a new configuration, until at least half of the population is better. Each replacement is one of the
    `stop.jobs` jobs of the experiment.

    If a member fails, its population has one member less. If the snapshot of a copy's parent is lost before the copy first
    saves, another copy replaces it.

    Args:
        population: Members of a population, in 2..10000.
        interval: Units between two boundaries, at least 1; None: a thirtieth of `max_iterations`, but at most `lag`.
        lag: Maximum lead over the slowest member in units, at least `interval`; None: twice the interval.
        truncation: Fraction of the worst and of the best members, in 0..0.5.
        resample: Probability of resampling a hyperparameter, in 0..1.
        frozen: Names of hyperparameters, or groups of them, that copies inherit unchanged.

    Raises:
        ValueError: An argument is out of range.
    """

    # Runs end at boundaries, the only positions at which the policy decides.
    every_iteration = False
    ends_jobs = False
    copies = True

    def __init__(
        self,
        population: int = 20,
        interval: int | None = None,
        lag: int | None = None,
        truncation: float = 0.2,
        resample: float = 0.25,
        frozen: Sequence[str] = (),
    ) -> None:
        for name, value, least in (
            ("population", population, 2),
            ("interval", interval, 1),
            ("lag", lag, interval if type(interval) is int else 1),
        ):
            if value is not None or name == "population":
                need_whole(name, value, least)
        need_at_most("population", population)
        for name, chance, most in (("truncation", truncation, 0.5), ("resample", resample, 1)):
            if type(chance) not in (int, float) or not 0 <= chance <= most:
                raise ValueError(f"{name} is {chance!r}; it must be in 0..{most}")
        if isinstance(frozen, str) or not all(isinstance(name, str) for name in frozen):
            raise ValueError(f"frozen is {frozen!r}; it must be a list of names of hyperparameters")
        self._size = population
        self._interval = interval
        self._lag = lag
        self._part = truncation
        self._resample = resample
        self._frozen = tuple(frozen)
        self._populations: list[Population] = []
        self._seats: dict[str, Population] = {}
        self._barren: set[tuple[str, int]] = set()  # snapshots, by job and position, that could not be forked
        self._made: set[tuple[int, str, int, str]] = set()  # copies so far: population, parent, position, configuration

    # ---------------------------------------------------------------------------------------------------------- up-calls

    def allocate_jobs(self, cluster: Cluster) -> None:
        """Start idle members that do not exceed the lag, and create missing ones.

        If no member is missing and slots remain beyond those for startable members and members in creation, start a new population.
        """
        for job in cluster.idle_jobs():
            if job.id not in self._seats:  # The job was replaced, but its run ended before the decision arrived.
                cluster.terminate_job(job.id)
        startable, slots = self._startable(cluster), cluster.idle_slots()
        for job, slot in zip(startable, slots, strict=False):
            until = min(self._seats[job.id].next_boundary(job.position), job.max_position)
            cluster.start_job(job.id, slot.id, until=until, allowed=until)
        coming = cluster.count(JobState.CREATING)
        if not self._fill(cluster) and len(slots) > len(startable) + coming:
            self._begin(cluster)

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        """At a boundary, end the member's run with a snapshot, or replace the member and terminate it.

        Between boundaries the run continues. A job that is not a member of a population is terminated.
        """
        job, population = cluster.jobs[event.job], self._seats.get(event.job)
        if population is None:
            return TERMINATE
        if not event.at_until:
            return Decision.proceed(job.max_position)
        founds = not job.parent and job.id not in population.results
        passed = population.passes(job.id, event.position, self._result(cluster, job.id))
        ends = event.report.finished or event.position >= job.max_position or job.state is JobState.SUSPENDING
        if ends or not passed:
            return CONTINUE
        if founds and self._is_drawn_again(cluster, population, job.id):
            self._leave(job.id)
            population.wanted += 1
            return TERMINATE
        self._tidy(cluster, population)
        if population.is_last(job.id, self._part) and self._copy(cluster, population, job.id):
            return TERMINATE
        return CONTINUE

    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        """Replace a copy that failed because its parent's snapshot was lost; remove any other failed member from its population."""
        job, population = cluster.jobs[run.job], self._seats.get(run.job)
        if population is None or job.state is not JobState.FAILED:
            return
        bereft = job.parent and not cluster.snapshots(job.id)
        if not (bereft and self._copy(cluster, population, job.id, anew=True)):
            self._leave(job.id)

    def on_generator_exhausted(self, cluster: Cluster, exhausted: GeneratorExhausted) -> None:
        """Remove from its population the member that could not be created because the generator has no further configuration."""
        self._leave(exhausted.job)

    def on_refused(self, cluster: Cluster, verdict: Verdict) -> None:
        """Handle a refused creation or fork of a member: create another member, or make another copy, in its place."""
        command = verdict.command
        if not isinstance(command, CreateJob | ForkJob) or command.job not in self._seats:
            return
        if isinstance(command, CreateJob):
            self._leave(command.job).wanted += 1
            return
        self._barren.add((command.parent, command.position))
        if not self._copy(cluster, self._seats[command.job], command.job, anew=True):
            self._leave(command.job)

    def demand(self, cluster: Cluster) -> int:
        """Return the number of slots in use plus one for each idle member that may start and each member yet to be created."""
        coming = cluster.count(JobState.CREATING) + cluster.experiment.jobs_left
        return cluster.busy_slots() + len(self._startable(cluster)) + coming

    def pauses(self, terms: ExperimentView) -> None:
        """Return None: members wait for others at boundaries, and copies continue from the snapshots of other members."""

    def review(self, terms: ExperimentView) -> str:
        """Check whether the policy can serve an experiment. There are no remarks, so the result is empty.

        Raises:
            ValueError: The space is unknown, neither `interval` nor a maximum position is given, or `frozen` contains a name that
                is not in the space.
        """
        self._terms(terms)
        return ""

    # -------------------------------------------------------------------------------------------------------- populations

    def _terms(self, terms: ExperimentView) -> frozenset[str]:
        """Return the names of the parameters that copies inherit unchanged.

        Raises:
            ValueError: No population can start under these terms: the space is unknown, neither `interval` nor a maximum position
                is given, or a frozen name is not in the space.
        """
        if terms.space is None:
            raise ValueError(
                "pbt changes hyperparameters, so it must know the search space, and here is none: to simulate it, give "
                "simulate() curves from a function (CurveWorkload), and the space they are of (space=...)"
            )
        if terms.max_position >= ENDLESS and self._interval is None:
            raise ValueError("pbt needs stop.max_iterations, or policy.interval: the units between two adaptations")
        return closure(terms.space, self._frozen)

    def _begin(self, cluster: Cluster) -> None:
        """Start a population in the running experiment that has the fewest populations relative to its weight in the group.

        Experiments that may have no more jobs are left out; nothing is done if there is no other.
        """
        able = [terms for terms in cluster.experiments.values() if terms.running and terms.jobs_left]
        if not able:
            return
        begun = [population.experiment for population in self._populations]
        terms = min(able, key=lambda terms: begun.count(terms.id) / terms.weight)
        frozen = self._terms(terms)
        interval = self._interval or min(max(terms.max_position // _ROUNDS, 1), self._lag or ENDLESS)
        lag = self._lag or 2 * interval
        size = min(self._size, terms.jobs_left)
        self._populations.append(Population(len(begun), terms.id, size, interval, lag, frozen, wanted=size))
        self._fill(cluster)

    def _fill(self, cluster: Cluster) -> bool:
        """Create missing members of all populations, as far as their experiments may have more jobs.

        Members of a large population are created in batches: further ones when the earlier ones have started.

        Returns:
            True if, at the start of the call, a population lacked members that its experiment may still create. They are created
                by this call or by later ones.
        """
        able = room(cluster, AT_ONCE - cluster.count(JobState.PENDING))
        left = {terms.id: terms.jobs_left for terms in cluster.experiments.values() if terms.running}
        made, grouped = False, len(cluster.experiments) > 1
        for population in self._populations:
            if population.wanted and population.experiment in left:
                population.wanted = min(population.wanted, left[population.experiment])
                made = made or population.wanted > 0
                for _ in range(min(population.wanted, able)):
                    job = cluster.create_job(experiment=population.experiment if grouped else "")
                    population.members[job] = None
                    self._seats[job] = population
                    left[population.experiment] -= 1
                    population.wanted -= 1
                    able -= 1
        return made

    def _leave(self, job: str) -> Population:
        population = self._seats.pop(job)
        population.leave(job)
        return population

    def _tidy(self, cluster: Cluster, population: Population) -> None:
        """Remove failed and terminated members from a population."""
        for job in [job for job in population.members if job in cluster.jobs]:
            if cluster.jobs[job].state in (JobState.FAILED, JobState.TERMINATED):
                self._leave(job)

    def _startable(self, cluster: Cluster) -> list[JobView]:
        """Return idle members whose next boundary is within the lag: oldest population first, then by least training."""
        slowest: dict[int, int] = {}
        found: list[tuple[int, int, JobView]] = []
        for job in cluster.idle_jobs():
            population = self._seats.get(job.id)
            if population is None or job.position >= job.max_position:
                continue
            if population.number not in slowest:
                slowest[population.number] = self._slowest(cluster, population)
            until = population.next_boundary(job.position)
            if until - slowest[population.number] <= population.lag:
                found.append((population.number, until, job))
        return [job for _, _, job in sorted(found, key=lambda each: each[:2])]

    def _slowest(self, cluster: Cluster, population: Population) -> int:
        """Return the position of the last boundary that the slowest member of a population has passed.

        A boundary counts as passed even if the run that passed it was lost and the member must be trained up to it again. Members
        whose jobs have ended or are HELD are left out. The result is 0 if no member remains or one has passed no boundary.
        """
        reached = [
            job.high_water
            for member in population.members
            if (job := cluster.jobs.get(member)) is not None and not job.state.ended and job.state is not JobState.HELD
        ]
        return population.boundary(min(reached, default=0)) * population.interval

    # --------------------------------------------------------------------------------------------------------- adaptation

    def _result(self, cluster: Cluster, job: str) -> float:
        """Return the last rated value that a job reported; minus infinity if there is none."""
        return next(reversed(cluster.ratings(job).values()), -math.inf)

    def _is_drawn_again(self, cluster: Cluster, population: Population, job: str) -> bool:
        """Return whether a member at its first boundary must be replaced by a new configuration.

        A member that is better than the kill threshold stays, and without a threshold every member. Of the other members, the first
        ones stay, up to half of the population; they are recorded in `Population.poor`. Each further one is replaced if the
        experiment may have more jobs.
        """
        terms = cluster.experiments[population.experiment]
        if terms.kill_threshold is None or population.results[job][0] > terms.rated(terms.kill_threshold):
            return False
        if len(population.poor) < population.size // 2:
            population.poor.add(job)
            return False
        return terms.jobs_left > 0

    def _copy(self, cluster: Cluster, population: Population, replaced: str, *, anew: bool = False) -> bool:
        """Replace a member of a population with a changed copy of one of the best; the caller terminates the replaced member's job.

        Args:
            cluster: The view of this up-call.
            population: The population.
            replaced: The member to replace. The copied member must be better; with `anew` it may be any other of the best.
            anew: Whether `replaced` is itself a copy that could not start.

        Returns:
            True if a copy was made. False: the population is unchanged, because no suitable member has a snapshot, or because
                all drawn copies equal earlier ones, whose training they would repeat.
        """
        sources = [
            (better, source)
            for better in population.best(self._part)
            if (population.is_better(better, replaced) or (anew and better != replaced))
            and (source := self._source(cluster, better)) is not None
        ]
        if not sources:
            return False
        better, (parent, position) = sources[below(cluster.rng, len(sources))]
        space = cluster.experiments[population.experiment].space
        assert space is not None  # The population could not have started without a space.
        inherited = cluster.jobs[better].hyperparameters
        for _ in range(_DRAWS):
            changed = explored(space, inherited, population.frozen, self._resample, cluster.rng)
            copy = (population.number, parent, position, json.dumps(changed, sort_keys=True))
            if anew or copy not in self._made:
                break
        else:
            return False
        self._made.add(copy)
        child = cluster.fork_job(parent, position, changed)
        del self._seats[replaced]
        self._seats[child] = population
        population.replace(replaced, child, better, position)
        return True

    def _source(self, cluster: Cluster, job: str) -> tuple[str, int] | None:
        """Return the newest snapshot from which a copy of a job can be forked: its own, else its parent's at the position of its fork.

        Returns:
            The job that has the snapshot, and the position; None: no usable snapshot exists.
        """
        view = cluster.jobs[job]
        found = [(job, at) for at in cluster.snapshots(job) if view.fork_position < at < view.max_position]
        if not found and view.parent and view.fork_position in cluster.snapshots(view.parent):
            found = [(view.parent, view.fork_position)]
        able = [source for source in found if source not in self._barren]
        return able[-1] if able else None
