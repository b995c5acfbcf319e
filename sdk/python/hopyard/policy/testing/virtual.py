"""Simulates a small cluster in virtual time, for tests of policies."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from hopyard.policy.base import Policy, serves_requests
from hopyard.policy.testing.commands import Commands
from hopyard.policy.testing.history import HistoryEntry, answer, replay
from hopyard.policy.testing.view import UpCallMoment, describe
from hopyard.policy.testing.world import (
    Curve,
    Delays,
    Generator,
    VirtualJob,
    VirtualRun,
    VirtualSlot,
    VirtualWorld,
    counting,
    steady,
)
from hopyard.policy.views import ExperimentView
from hopyard.policy.vocabulary import (
    AllocateJobs,
    Ask,
    Call,
    Command,
    CreateJob,
    Data,
    ExperimentChange,
    ForkJob,
    Hyperparameters,
    IterationFinish,
    JobState,
    Partition,
    Predict,
    RequestMade,
    RunEndReason,
    SlotsChange,
    StartJob,
    Verdict,
)
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard.space import Space


class StalledError(AssertionError):
    """The virtual cluster has no more events, but the experiment has not ended. The message describes its jobs and slots."""


class SpinningError(AssertionError):
    """The policy got more than the maximum number of up-calls (`max_calls`), probably in an endless loop."""


class VirtualCluster(Commands):
    """A simulation, in virtual time, of one experiment with a policy and its slots. It is deterministic and does no I/O.

    It makes the up-calls in the order of the real engine: one at a time; `ApplicationStat` before the `IterationFinish`
    of the same report; and `AllocateJobs` last, only if a slot is idle and something relevant to allocation has
    changed. Every command is checked against the exact state. An illegal one raises `IllegalCommand`, which names the
    up-call.

    The share is the number of slots, limited by `set_share` and by the policy's `demand`, rounded down to complete
    gangs.

    A test can schedule events: `cluster.at(3.0, cluster.lose_run, "1")`; then it calls `cluster.run()`. After that, the
    attributes show the result: `history` has the up-calls with their answers, `runs` all finished runs, `jobs` the jobs
    by id as a policy would see them, `now` the virtual time, and `over` the reason for the end of the experiment (empty
    if it has not ended). `curve` returns the reports of a job.

    Args:
        policy: The policy under test.
        slots: Number of slots at the start: m01, m02, ...
        jobs: Number of jobs that may be created.
        max_position: The position at which a job is complete.
        curve: Function of a configuration and a position that returns the iteration ending at this position. It may
            raise `TrainingFailed`.
        generator: Function that returns the next configuration, or None if there are no more.
        metric: The name of the metric to optimize.
        mode: Whether larger (max) or smaller (min) values are better.
        target: The experiment ends when a job reaches this value; None: no target.
        kill_threshold: `ExperimentView.kill_threshold`: a policy may end a job that stays worse than this value; None: no
            threshold.
        low: The smallest value that the metric can have; None: not known.
        high: The largest value that the metric can have; None: not known.
        space: `ExperimentView.space`, the space that the policy sees. Configurations still come from `generator`.
        seed: The experiment's seed.
        interval: Number of positions by which an iteration advances.
        snapshot_every: Number of positions between saves during a run; 0: save only at its end and on request of the
            policy.
        keep_latest: Number of snapshots that each job retains; 0: all.
        max_failures: Number of failures of a job that are allowed before it is FAILED.
        max_losses: Number of successive lost runs without progress that are allowed before the job is FAILED.
        grace: Seconds between a decrease of the share and its deadline.
        delays: Durations of all other operations; None: all are 0.
        respond: Function that returns the result of a `Predict` (a `hopyard.predictor.Prediction`) or an `Ask`. It may
            raise `Unanswered`. None: all requests fail.
        refuse: Function of a command that returns the reason for which the engine refuses it, as if its state had
            changed; an empty text accepts it. None: all commands are accepted.
        data: The experiment's partitions; None: it names no data. Slot m01 is on the node "node-m01", which has its
            partitions while it exists.
        gathers: Whether the program trains on gangs whose ranks have one partition each (`Trainer.gathers_partitions`).
            An iteration is then one pass over all of them and has as many units. It takes as long as a single iteration
            that ends at the same position.
        hardware: The kind of host of some slots, by slot id. It is unknown for the others.
        scaling: Earlier measurements: seconds per unit, by kind of host and number of slots.
        watch: Whether to check that the policy does not modify what it is given.
        max_calls: Maximum number of up-calls before a `SpinningError`.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        slots: int = 2,
        jobs: int = 4,
        max_position: int = 3,
        curve: Curve = steady,
        generator: Generator = counting,
        metric: str = "accuracy",
        mode: Literal["max", "min"] = "max",
        target: float | None = None,
        kill_threshold: float | None = None,
        low: float | None = None,
        high: float | None = None,
        space: Space | None = None,
        seed: int = 0,
        interval: int = 1,
        snapshot_every: int = 0,
        keep_latest: int = 0,
        max_failures: int = 1,
        max_losses: int = 3,
        grace: float = 1.0,
        delays: Delays | None = None,
        respond: Callable[[Predict | Ask], object] | None = None,
        refuse: Callable[[Command], str] | None = None,
        data: Data | None = None,
        gathers: bool = False,
        hardware: Mapping[str, str] | None = None,
        scaling: Mapping[str, Mapping[int, float]] | None = None,
        watch: bool = False,
        max_calls: int = 20_000,
    ) -> None:
        self.policy = policy
        self.history: list[HistoryEntry] = []
        parts = len(data.train) if data is not None else 0
        terms = ExperimentView(
            metric,
            mode,
            max_position,
            target,
            kill_threshold,
            jobs,
            seed,
            space=space,
            partitions=parts,
            low=low,
            high=high,
        )
        world = VirtualWorld(
            interval, snapshot_every, keep_latest, max_failures, max_losses, grace, delays or Delays(), gathers
        )
        super().__init__(terms, world, curve, generator, respond)
        self.data = data
        self._refuse, self._watch, self._max_calls = refuse, watch, max_calls
        self._verdicts: list[Verdict] = []
        self._scripted = self._tickets = 0
        self._hardware, self._scaling = dict(hardware or {}), scaling or {}
        self.slots = {name: self._slot(name) for name in (f"m{number:02}" for number in range(1, slots + 1))}
        self._after(0.0, self._rebalance)

    # ------------------------------------------------------------------------------------------------ control by a test

    def at(self, time: float, action: Callable[..., None], *arguments: object) -> None:
        """Schedule the call `action(*arguments)`, such as of the method `lose_run`, for a virtual time in seconds."""
        self._scripted += 1
        self._push(time, True, action, arguments)

    def run(self, until: float | None = None) -> list[HistoryEntry]:
        """Run until the experiment has ended and all scheduled actions are done, or up to a virtual time.

        Args:
            until: The virtual time in seconds at which to stop, inclusive; None: no limit.

        Returns:
            The history: each up-call with its answer, since the beginning of the experiment.

        Raises:
            StalledError: No more events will happen, but the experiment has not ended.
            SpinningError: More than `max_calls` up-calls were made.
            IllegalCommand: The policy gave an impossible command.
            AssertionError: With `watch`, the policy modified what it was given.
        """
        while self._heap and not (self.over and not self._scripted):
            if until is not None and self._heap[0][0] > until:
                self.now = until
                return self.history
            self.now, _, scripted, action, arguments = heapq.heappop(self._heap)
            self._scripted -= scripted
            action(*arguments)
            self._settle()
        if not self.over:
            raise StalledError(self.story())
        return self.history

    def rebuild(self, policy: Policy) -> None:
        """Replace the policy, as after a crash: `policy` gets all recorded up-calls and then serves the experiment.

        The answers of `policy` to the recorded up-calls are neither carried out nor compared with the recorded answers.
        """
        replay(policy, self.history)
        self.policy = policy

    def story(self) -> str:
        """Return a summary of the jobs and slots as text, for messages."""
        jobs = [f"{job.id} {job.state.value} at {job.position}{' parked' * job.parked}" for job in self.jobs.values()]
        held = [m for m in self.slots.values() if m.granted]
        slots = [f"{m.id} {(m.job and 'runs ' + m.job) or (m.reserved and 'reserved') or 'idle'}" for m in held]
        return (
            f"stalled at {self.now:g} s after {len(self.history)} up-calls: jobs [{', '.join(jobs)}]; "
            f"slots [{', '.join(slots)}]; {self.terms.jobs_left} jobs may still be created"
        )

    # ----------------------------------------------------------------------------------------------- faults and changes

    def lose_run(self, job: str) -> None:
        """End the current run of a job as LOST. Without a run, or with an unknown job, it does nothing.

        Args:
            job: The job's id.
        """
        run = self.virtual_jobs[job].run if job in self.virtual_jobs else None
        if run is not None:
            self._ended(self.virtual_jobs[job], run, RunEndReason.LOST, "its process is gone")

    def lose_slot(self, slot: str) -> None:
        """Remove a slot, with its run and with the snapshots on it that are not yet in the store. An unknown slot has no effect."""
        lost = self.slots.pop(slot, None)
        if lost is None:
            return
        for job in self.virtual_jobs.values():
            job.saves = {p: s for p, s in job.saves.items() if s[0] <= self.now or s[1] != slot}
            if job.run is not None and slot in job.run.command.slots:
                job.run.displaced = job.run.displaced or job.run.ending is None
                self._ended(job, job.run, RunEndReason.LOST, f"slot {slot} is lost")
            elif job.view.state.idle and job.view.position != job.source():
                job.change(position=job.source(), state=JobState.SUSPENDED if job.saves else JobState.PENDING)
        if lost.granted:
            self._calls.append((SlotsChange(lost=(slot,)), None))
            self._wake()
        self._rebalance()

    def join_slot(self, slot: str) -> None:
        """Add a slot with the id `slot`, unless it exists."""
        self.slots.setdefault(slot, self._slot(slot))
        self._rebalance()

    def set_share(self, slots: int) -> None:
        """Limit the share of the experiment to `slots` slots from now on.

        If it then has too many slots, runs that still use excess slots after `grace` seconds are preempted.
        """
        self._cap = slots
        self._rebalance()

    def extend(self, jobs: int = 0, max_position: int = 0) -> None:
        """Extend the experiment. If it has ended, it continues.

        Args:
            jobs: Number of additional jobs.
            max_position: The new position at which jobs are complete; ignored if it is not larger than the present one.
        """
        longer = max_position > self.terms.max_position
        left = 0 if self._exhausted else self.terms.jobs_left + jobs
        self.terms = replace(self.terms, jobs_left=left, max_position=max(max_position, self.terms.max_position))
        for job in self.virtual_jobs.values():
            if longer and job.limit is None and job.view.state is JobState.COMPLETED:
                self._idle(job, job.source())
        self.over = ""
        self._wake()
        self._calls.append((ExperimentChange("extended"), None))

    def pause(self) -> None:
        """Pause the experiment: suspend all runs at their next boundary and start none until `resume`. The slots are released."""
        self._paused = True
        for job in self.virtual_jobs.values():
            if job.run is not None:
                self._end(job, job.run, RunEndReason.SUSPENDED, displaces=True)
        self._calls.append((ExperimentChange("paused"), None))
        self._rebalance()

    def resume(self) -> None:
        """End a pause of the experiment: jobs may start again. Without a pause, the policy only gets an `ExperimentChange`."""
        self._paused = False
        self._wake()
        self._calls.append((ExperimentChange("resumed"), None))
        self._rebalance()

    def request(self, ticket: str, hyperparameters: Hyperparameters, position: int) -> None:
        """Request, as a client, a configuration trained to a position.

        If the policy overrides `on_request`, a job is created for the request; otherwise the request has no effect.

        Args:
            ticket: Identifies the request.
            hyperparameters: The configuration.
            position: The position to which it is to be trained.
        """
        if not serves_requests(self.policy):
            self._calls.append((RequestMade(ticket, hyperparameters, position), None))
            return
        job = self._new_job(str(self._ordinals + 1))
        job.limit = position
        job.change(hyperparameters=dict(hyperparameters))
        self._idle(job, 0)
        self._calls.append((RequestMade(ticket, hyperparameters, position, job.id), None))

    # --------------------------------------------------------------------------------------------------------- up-calls

    def _settle(self) -> None:
        while not self.over:
            if self._calls:
                call, run = self._calls.popleft()
                if isinstance(call, IterationFinish) and self.virtual_jobs[call.job].run is not run:
                    continue
                self._at_rest = False
                self._make(call, run)
                continue
            self._look_for_the_end()
            if self.over or not self._attention or self._paused or not (self._placeable() or self._outdated):
                break
            self._attention = False
            self._make(AllocateJobs(), None)

    def _look_for_the_end(self) -> None:
        live = any(job.run is not None for job in self.virtual_jobs.values())
        if live or self._asked or self._paused:
            return
        data = self._held_data()
        missing = data is not None and not all(each.nodes for each in (*data.train, *data.evaluate))
        ended = all(job.view.state.ended for job in self.virtual_jobs.values())
        if missing and not ended:
            return  # It waits for a node that holds the missing data.
        held = sum(m.granted for m in self.slots.values())
        if self._demand is not None and held < min(
            n for n in (len(self.slots), self._cap, self._demand) if n is not None
        ):
            return  # It waits for slots that will be granted soon.
        # `allocate_jobs` was called and gave no command, or the policy cannot use a slot; another call is useless.
        idle = sum(m.granted and not m.job for m in self.slots.values())
        offered = self._gang == 1 or idle >= self._gang
        rests = (self._at_rest and not self._attention and offered) or self._demand == 0
        if ended and not self.terms.jobs_left:
            self.over = "all jobs ended"
        elif rests and not self._timers:
            self.over = "the policy has nothing left to do"

    def _placeable(self) -> bool:
        held = [m for m in self.slots.values() if m.granted]
        return any(not m.job and not m.reserved for m in held) and sum(bool(m.job) for m in held) < self.share

    def _moment(self) -> UpCallMoment:
        jobs = self.virtual_jobs.values()
        waiting = sorted((j for j in jobs if j.view.state.idle), key=_rank)
        held = [m for _, m in sorted(self.slots.items()) if m.granted]
        number = len(self.history) + 1
        return UpCallMoment(
            number=number,
            now=self.now,
            seed=self.terms.seed * 1_000_003 + number,
            experiment=replace(self.terms, jobs_left=0, running=False) if self._paused else self.terms,
            share=self.share,
            jobs=self.jobs,
            slots={slot.id: slot.view() for slot in held},
            reserved=frozenset(m.id for m in held if m.reserved),
            queue=() if self._paused else tuple(job.id for job in waiting),
            curves={job.id: job.points for job in jobs},
            saves={job.id: tuple(sorted(job.saves)) or job.origin() for job in jobs},
            incumbent=self._incumbent,
            next_job=self._ordinals + 1,
            next_ticket=self._tickets + 1,
            data=self._held_data(),
            scaling=self._scaling,
        )

    def _slot(self, name: str) -> VirtualSlot:
        return VirtualSlot(name, hardware=self._hardware.get(name, ""))

    def _held_data(self) -> Data | None:
        """Return the partitions, each with those of its nodes that exist now; None if the experiment names no data."""
        if self.data is None:
            return None
        live = {slot.view().node for slot in self.slots.values()}

        def held(partitions: tuple[Partition, ...]) -> tuple[Partition, ...]:
            return tuple(replace(each, nodes=tuple(n for n in each.nodes if n in live)) for each in partitions)

        return replace(self.data, train=held(self.data.train), evaluate=held(self.data.evaluate))

    def _make(self, call: Call, run: VirtualRun | None) -> None:
        moment, refused = self._moment(), tuple(self._verdicts)
        if moment.number > self._max_calls:
            raise SpinningError(f"{self._max_calls} up-calls were made; the last: {self.history[-1]}")
        self._verdicts, self._outdated = [], False
        given = repr((moment, call, refused)) if self._watch else ""
        entry, view = answer(self.policy, moment, call, refused)
        if self._watch and given != repr((moment, call, refused)):
            raise AssertionError(f"{describe(moment, call)}: the policy changed what it was given")
        self.history.append(entry)
        self._tickets += view.tickets
        accepted = 0
        for command in entry.commands:
            reason = self._refusal(command)
            if reason:
                self._verdicts.append(Verdict(command, False, Reason.of(ReasonCode.COMMAND_INVALID, problem=reason)))
                self._wake()
            else:
                accepted += 1
                self._carry_out(command)
        if isinstance(call, AllocateJobs):
            self._at_rest = accepted == 0 and not self._verdicts
            live = any(job.run is not None for job in self.virtual_jobs.values())
            if accepted and not live and not self._asked and not self._timers:
                self._wake()  # The answer had commands without any consequence. Call `allocate_jobs` once more.
        if entry.decision is not None and run is not None and isinstance(call, IterationFinish):
            self._decide(self.virtual_jobs[call.job], run, call, entry.decision)
        if (entry.demand, entry.gang) != (self._demand, self._gang):
            self._demand, self._gang = entry.demand, entry.gang
            self._after(0.0, self._rebalance)

    def _refusal(self, command: Command) -> str:
        reason = self._refuse(command) if self._refuse is not None else ""
        if reason:
            return reason
        if isinstance(command, StartJob) and self._paused:
            return "the experiment is paused"
        if isinstance(command, CreateJob | ForkJob) and command.job != str(self._ordinals + 1):
            return f"a new job must be {self._ordinals + 1}"  # An earlier creation in the same answer was refused.
        return ""


def _rank(job: VirtualJob) -> tuple[float, bool, int]:
    """Return the key by which idle jobs wait, smallest first: by priority, displaced ones first, then by arrival."""
    return -(job.view.priority or 0.0), not job.view.displaced, job.queued
