"""One scheduling pass of the policy `stage_tree`: which runs continue, which are suspended, and what starts on idle slots.

A *trial* is a configuration that a tuner or a client wants trained; it is *open* until it has ended. A *stage* is a piece of training
that some trials need and that one run does without a stop. The *critical path* of a stage is the longest chain of stages that begins
with it, in seconds of training. A *branch* is the part of the search plan with the trials that are equal at their first position.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import NamedTuple

from hopyard.policy import (
    CONTINUE,
    SUSPEND,
    TERMINATE,
    Cluster,
    Decision,
    IterationFinish,
    JobState,
    SlotView,
)
from hopyard_policies.inner_policy.trials import TrialState
from hopyard_policies.stage_tree.cost_sharing import bill
from hopyard_policies.stage_tree.incremental_tree import Inputs, Ready, TreeBranch, in_order
from hopyard_policies.stage_tree.plan import Nodes
from hopyard_policies.stage_tree.state import PolicyState, RequestedRun
from hopyard_policies.stage_tree.tree import RunningTrial, Stage


class _Start(NamedTuple):
    """A run to start.

    Attributes:
        stage: The first stage that the run trains.
        way: The length in seconds of the stage's critical path, the longest chain of stages that begins with it.
        trial: The trial whose job runs.
        goal: The position that the run should reach.
    """

    stage: Stage
    way: float
    trial: str
    goal: int


def own_snapshots(cluster: Cluster, job: str) -> list[int]:
    """Return the positions of the snapshots that a job saved itself, without the snapshot from which it was forked.

    The job may also belong to an earlier experiment.
    """
    view = cluster.jobs.get(job)
    return [p for p in cluster.snapshots(job) if view is None or not view.parent or p != view.fork_position]


class Dispatch:
    """Decides which runs continue and what starts on idle slots, from the view of one up-call; used for one call of `decide`.

    Args:
        books: The state of the policy; updated.
        cluster: The view; receives the commands.
        event: The boundary at which a run waits for a decision; None: no run waits.
    """

    def __init__(self, books: PolicyState, cluster: Cluster, event: IterationFinish | None) -> None:
        self._books, self._cluster, self._event = books, cluster, event
        self._plan, self._tuners, self._times = books.plan, books.tuners, books.times
        self._jobs = cluster.jobs
        running = {name for name, terms in cluster.experiments.items() if terms.running}
        self._saved: dict[str, frozenset[int]] = {}
        group = cluster.experiments if len(cluster.experiments) > 1 else {}
        self._targets = {name: terms.target for name, terms in group.items() if terms.target is not None}
        self._inputs: dict[int, Inputs] = {}
        self._gather(running)
        self._end_trials()
        self._branches = books.forest.grow(self._inputs, self._available, self._times)
        self._ready = in_order(self._branches.values())
        # Positions where trials stop and may be forked.
        self._copied = (
            [(state.id, virtual_run.until) for state, virtual_run in self._tuners.virtual_runs()]
            if self._tuners.copies
            else []
        )
        self._quantum = self._quantum_seconds()

    def decide(self) -> Decision:
        """Submit the commands that end, change and start runs.

        Return the decision for the run of the event; CONTINUE without an event.
        """
        matched, waiting, stuck = self._match()
        highest = self._contended(waiting, len(self._cluster.idle_slots()) - len(matched))
        for run in self._books.runs.values():
            if self._goes_on(run) and not self._is_event(run):
                self._govern(run, highest)
        leaves = self._event is not None and not self._event_goes_on(self._event, max(waiting, default=0.0), highest)
        for slot, start in matched:
            self._register(slot, start, highest)
        decisions = self._next_decisions()
        for _, start in matched:
            self._submit(start, decisions)
        if len(self._cluster.experiments) > 1:
            bill(self._books, self._cluster, self._branches, {start.trial for _, start in matched})
        self._books.keeping.say(self._cluster, self._plan, self._passed(), own_snapshots)
        going = sum(not run.leaving for run in self._books.runs.values())
        startable = len(self._ready) - len(matched) - sum(map(self._backs_off, stuck))
        self._books.could_use = going + startable + self._tuners.coming(self._cluster)
        if self._event is None:
            return CONTINUE
        if leaves:
            return self._leave(self._event)
        return Decision.proceed(decisions[self._event.job])

    # --------------------------------------------------------------------------------------------------------- inputs

    def _gather(self, running: Collection[str]) -> None:
        """Collect in `_inputs`, for each branch of the search plan, the values from which its stages are computed (`Inputs`).

        These are the open trials, the training that is wanted of them, and the current runs. A branch is the part of the search plan
        with the trials that are equal at their first position. A branch on which all trials have ended and no run trains gets no entry.

        Args:
            running: The ids of the running experiments.
        """
        self._parts = list(self._books.parts())
        for experiment, part in self._parts:
            for number, trials in part.open.items():
                self._input(number).open.extend(trials)
            if experiment in running:
                for number, virtual_runs in part.virtual_runs.items():
                    self._input(number).virtual_runs.extend(virtual_runs)
        for run in self._books.runs.values():
            found = self._input(self._plan.branch(run.trial))
            if self._jobs[run.trial].state.live:
                found.runs.append(self._running(run))

    def _input(self, number: int) -> Inputs:
        found = self._inputs.get(number)
        if found is None:
            saved = [self._cluster.snapshots(name) for name in self._plan.savers(number)]
            found = self._inputs[number] = Inputs(changes=self._plan.changes(number), saved=saved)
        return found

    def _passed(self) -> dict[int, Nodes]:
        """Return the nodes of the search plan that are on the paths of trials that have not ended, by number of the branch."""
        return {number: branch.open_nodes for number, branch in self._branches.items()}

    def _branch(self, trial: str) -> TreeBranch:
        return self._branches[self._plan.branch(trial)]

    def _running(self, run: RequestedRun) -> RunningTrial:
        """Describe a run for the stage tree: its trial, its position, and the position up to which it trains."""
        job = self._jobs[run.trial]
        called_off = job.state is JobState.SUSPENDING and not (run.leaving or job.parked)
        stands = run.leaving or job.state is JobState.SUSPENDING or (self._is_event(run) and self._at_until)
        until = job.position if stands else max(run.until, job.position)
        # The engine or a person suspends the run: it saves here or at its next report. Its trial may still be needed.
        if called_off:
            until = min(job.position + 1, self._plan[run.trial].limit)
        return RunningTrial(run.trial, job.position, until, called_off or job.position in run.saves)

    @property
    def _at_until(self) -> bool:
        return self._event is not None and self._event.at_until

    def _is_event(self, run: RequestedRun) -> bool:
        return self._event is not None and run.trial == self._event.job

    def _goes_on(self, run: RequestedRun) -> bool:
        """Return whether a run can still receive commands: it has started, and this policy has not ended it."""
        return not run.leaving and self._jobs[run.trial].state in (JobState.STARTING, JobState.RUNNING)

    def _available(self, trial: str, position: int) -> bool:
        if trial not in self._saved:
            self._saved[trial] = frozenset(own_snapshots(self._cluster, trial))
        return position in self._saved[trial]

    def _quantum_seconds(self) -> float:
        """Return the quantum in seconds: how much longer another stage's critical path must be for a run to give up its slot.

        A critical path is the longest chain of stages that begins with a stage.

        With T seconds of work left for each slot, a switch every q seconds causes T/q switches, and the last runs
        end up to q apart. The sum of both costs is least at the square root of T times the cost of a switch.
        """
        left = sum(branch.left for branch in self._branches.values())
        return math.sqrt(self._times.beside * left / max(self._cluster.share, 1))

    # ---------------------------------------------------------------------------------------------- trials that have ended

    def _end_trials(self) -> None:
        """End the jobs of trials that the tuner has ended.

        A completed trial's job is answered with the results of the job that trained its positions. If no other job trained them and
        its own training was lost after its last report, the positions up to that report are trained again. The job of a terminated
        trial is terminated once no other trial needs its snapshots. The jobs of trials that wait for further training receive the
        known results of other jobs, if their experiment has a target.
        """
        every = (state for _, state in self._books.trials())
        # Trials that wait for further training are read only if results of another experiment may reach their target.
        for state in every if self._targets else [state for _, part in self._parts for state in part.resting]:
            if state.over or not self._idle(state.id):
                continue
            if state.ended is None:
                self._tell(state)
            elif state.ended is JobState.COMPLETED:
                position = self._reported(state)
                reached, by = self._plan.known(state.id, position)
                if by != state.id and reached >= position:
                    self._cluster.answer_job(state.id, by, position)
                else:  # The training was lost after the last report.
                    self._input(self._plan.branch(state.id)).again.append((state.id, position))
            elif state.ended is JobState.TERMINATED and not self._serves(state.id):
                self._tell(state)
                self._cluster.terminate_job(state.id)

    def _reported(self, state: TrialState) -> int:
        """Return the position of a trial that its tuner knows, at most the trial's limit; a report may be beyond the limit."""
        return min(state.position, self._plan[state.id].limit)

    def _idle(self, trial: str) -> bool:
        """Return whether a trial's job can be started: it waits for a slot, and this policy has no record of a run of it.

        A job whose run has ended waits for a slot already before its `RunEnd` up-call arrives; until then the result is False.
        """
        return trial not in self._books.runs and self._cluster.waits(trial)

    def _tell(self, state: TrialState) -> None:
        """Answer a job without a run with the results that other jobs have produced for its trial, without completing it.

        If the trial is still waiting for further training, this is done only if its experiment has a target, because a run of
        another experiment does not check that target.
        """
        job, position = self._jobs[state.id], self._reported(state)
        if state.virtual_run is not None:
            if self._targets.get(job.experiment) is None:
                return
            position, by = self._plan.known(state.id, job.max_position)
            if by in self._jobs and self._jobs[by].experiment == job.experiment:
                return
        if position > job.high_water:
            reached, by = self._plan.known(state.id, position)
            if by != state.id and reached >= position:
                self._cluster.answer_job(state.id, by, position, completes=False)

    def _serves(self, trial: str) -> bool:
        """Return whether another trial may start from a snapshot of a trial's job, or from one that its run is about to save.

        If so, the job must not be terminated, because that would delete its snapshots.
        """
        number = self._plan.branch(trial)
        if number not in self._inputs:
            return False
        open_nodes = self._books.forest.open_nodes(number, self._inputs[number])
        run = self._books.runs.get(trial)
        coming = {*run.saves, self._jobs[trial].position} if run is not None else set[int]()
        for position in coming.union(own_snapshots(self._cluster, trial)):
            if 0 < position <= self._plan[trial].limit:
                node = self._plan.node(trial, position)
                if id(node) in open_nodes and node.saves.get(position, [trial]) == [trial]:
                    return True
        return False

    # -------------------------------------------------------------------------------------------------------- current runs

    def _govern(self, run: RequestedRun, highest: float) -> None:
        """Suspend or terminate a run that is no longer needed; otherwise update its end position and add its save points.

        A run is shortened to the position up to which it is needed, or to the position where another critical path becomes longer
        than its own by a quantum (see `_quantum_seconds`).

        Args:
            run: The run.
            highest: The longest critical path without a slot, in seconds; see `_contended`.
        """
        position = self._jobs[run.trial].position
        branch = self._branch(run.trial)
        need = branch.needed.get(run.trial)
        if need is None or need <= position:
            if self._dropped(run.trial):
                self._cluster.terminate_job(run.trial)
            else:
                self._cluster.suspend_job(run.trial)
            run.leaving = True
            return
        until = need
        if self._times.tells_costs and not run.firm:
            until = self._far(run.trial, position, need, branch.tree.length_behind(run.trial), highest)
        if until < run.until:
            self._amend(run, until=until)
        for save in self._saves(run.trial, position, run.until) - run.saves - run.late:
            self._amend(run, save=save)

    def _amend(self, run: RequestedRun, until: int | None = None, save: int | None = None) -> None:
        saves = {save} if save is not None else set()
        ticket = self._cluster.amend_run(run.trial, until=until, snapshot_at=saves)
        self._books.amends[ticket] = (run.trial, run.until, saves)
        run.until = run.until if until is None else until
        run.saves |= saves

    def _dropped(self, trial: str) -> bool:
        """Return whether a trial's job can be terminated: its tuner has terminated it and no trial needs its run or its snapshots."""
        state = self._books.state(trial)
        ended = state is not None and state.ended is JobState.TERMINATED
        return ended and trial not in self._branch(trial).needed and not self._serves(trial)

    def _saves(self, trial: str, start: int, until: int) -> set[int]:
        """Return the positions where a run should save: where trials branch off or may be forked, and every `save_every` units.

        Trials that have ended are left out.

        Args:
            trial: The trial that runs.
            start: The position after which save points may lie.
            until: The last position that may be a save point.
        """
        found = {end for end in self._branch(trial).parts(trial) if start < end <= until}
        for other, position in self._copied:
            node = self._plan.node(other, position)
            if other != trial and start < position <= until and self._plan.passes(trial, node):
                found.add(position)
        if self._books.save_every is not None:
            first = start - start % self._books.save_every + self._books.save_every
            found.update(range(first, until + 1, self._books.save_every))
        return found

    def _event_goes_on(self, event: IterationFinish, waiting: float, highest: float) -> bool:
        """Return whether the run that waits at a boundary continues; if so, submit its new end position and save points.

        Args:
            event: The boundary.
            waiting: The longest critical path (chain of stages), in seconds, of the stages that could start now but found no idle
                slot; 0: there is none.
            highest: The longest critical path, in seconds, of those and of the stages that later branch off the paths of continuing
                runs, for which no slot is left; see `_contended`.
        """
        run, position = self._books.runs[event.job], event.position
        if not event.at_until:
            if self._branch(run.trial).needed.get(run.trial, 0) <= position:
                return False
            self._govern(run, highest)
            return True
        state = self._books.state(run.trial)
        assert state is not None
        virtual_run = state.virtual_run
        if self._tuners.copies and position in state.stops:  # The run saves when it ends, so the tuner can fork it.
            return False
        way = self._way_on(run.trial, position)
        if virtual_run is None or way is None or len(self._cluster.slots) > self._cluster.share:
            return False
        left = self._branch(run.trial).tree.length_of(way)
        if waiting > left and waiting >= left + self._quantum:
            return False
        self._amend(run, until=self._far(run.trial, position, virtual_run.until, left, highest))
        for save in self._saves(run.trial, position - 1, run.until) - run.saves:
            self._amend(run, save=save)
        return True

    def _way_on(self, trial: str, position: int) -> Stage | None:
        """Return the stage with which a run parked at a position would continue; None: its trial needs no further training."""
        for point in self._branch(trial).tree.roots():
            if point.run == trial and point.position == position:
                for child in point.children:
                    if self._plan.passes(trial, child.node):
                        return Stage(point, child)
        return None

    def _leave(self, event: IterationFinish) -> Decision:
        """Mark the run of the event as ending. Return the decision that ends it, so that its slot becomes idle.

        It is TERMINATE if the job can be terminated. Otherwise it is SUSPEND, or CONTINUE if the run ends at this position anyway.
        """
        self._books.runs[event.job].leaving = True
        if self._dropped(event.job):
            return TERMINATE
        return CONTINUE if event.at_until else SUSPEND

    # ---------------------------------------------------------------------------------------------------------- new runs

    def _match(self) -> tuple[list[tuple[SlotView, _Start]], list[float], list[Stage]]:
        """Match stages that can start to idle slots, longest critical path (the chain of stages that a stage begins) first.

        Returns:
            The matches: slots with the runs to start on them. The lengths in seconds of the critical paths of stages for which no
            idle slot was left. The stages that no job can train now.
        """
        slots = list(self._cluster.idle_slots())
        matched, waiting, stuck = [], [], []
        for ready in self._ready:
            if slots and (start := self._runner(ready)) is not None:
                slot = self._nearest(slots, start)
                slots.remove(slot)
                matched.append((slot, start))
            elif not slots and self._has_runner(ready.stage):
                waiting.append(ready.way)
            else:
                stuck.append(ready.stage)
        return matched, waiting, stuck

    def _able(self, trial: str, stage: Stage) -> bool:
        """Return whether a trial's job can train a stage: the job is idle, and the trial was not forked after the stage's start.

        Before the fork another configuration was trained, which the job does not have.
        """
        return self._idle(trial) and self._plan[trial].begins <= stage.start.position

    def _trials_of(self, stage: Stage) -> Iterator[str]:
        """Yield the trials that need a stage."""
        stack = [stage.end]
        while stack:
            point = stack.pop()
            yield from point.requests
            stack.extend(point.children)

    def _has_runner(self, stage: Stage) -> bool:
        """Return whether the job of any trial that needs a stage can train it."""
        return any(self._able(trial, stage) for trial in self._trials_of(stage))

    def _backs_off(self, stage: Stage) -> bool:
        """Return whether all jobs that could train a stage are in backoff after losses or failures."""
        able = [trial for trial in self._trials_of(stage) if self._plan[trial].begins <= stage.start.position]
        return bool(able) and all(map(self._cluster.backs_off, able))

    def _runner(self, ready: Ready) -> _Start | None:
        """Return the run that trains a stage and what follows; None: no job can train it.

        Of the trials that need the stage and whose jobs are idle, the one with the longest remaining training in seconds, from the
        start of the stage to the position up to which the trial is wanted, is chosen.

        Args:
            ready: The stage, which can start now.
        """
        stage = ready.stage
        best: tuple[float, int] | None = None
        found = None
        stack = [(stage.end, stage.length * self._times.unit(stage.end.node.member))]
        while stack:
            point, far = stack.pop()
            for trial in point.requests:
                rank = (far, -self._jobs[trial].ordinal)
                if self._able(trial, stage) and (best is None or rank > best):
                    best, found = rank, _Start(stage, ready.way, trial, point.position)
            for child in point.children:
                seconds = (child.position - point.position) * self._times.unit(child.node.member)
                stack.append((child, far + seconds))
        return found

    def _nearest(self, slots: list[SlotView], start: _Start) -> SlotView:
        """Return the slot that last ran the job whose state is loaded, else a slot on its node, else the first of `slots`.

        Args:
            slots: The idle slots, at least one.
            start: The run to start.
        """
        maker = start.stage.start.save or start.trial
        last = self._books.slots.get(maker, "")
        held = self._cluster.slots.get(last)
        for slot in slots:
            if slot.id == last:
                return slot
        return next((m for m in slots if held is not None and m.node == held.node), slots[0])

    def _contended(self, waiting: list[float], spare: int) -> float:
        """Return the longest critical path (chain of stages), in seconds, for which no idle slot is left; 0: each has a slot.

        Critical paths that branch off the paths of continuing runs also need slots.

        Args:
            waiting: The critical paths of stages that found no idle slot, in seconds.
            spare: The number of slots that remain idle.
        """
        behind = [way for branch in self._branches.values() for way in branch.behind]
        return max(sorted([*waiting, *behind], reverse=True)[max(spare, 0) :], default=0.0)

    def _far(self, trial: str, position: int, goal: int, left: float, highest: float) -> int:
        """Return the position at which a run parks for the next decision.

        This is its goal, or the position where another critical path becomes longer than its own by a quantum (see `_quantum_seconds`).

        Args:
            trial: The trial that runs.
            position: The position of the run.
            goal: The position that the run should reach.
            left: The length of the run's own critical path in seconds.
            highest: The longest critical path without a slot, in seconds; see `_contended`.
        """
        if highest <= 0:
            return goal
        unit = self._times.unit(trial)
        least = max(math.ceil(self._quantum / unit), 1)
        units = max(math.ceil((left - highest + self._quantum) / unit), least)
        return goal if position + units + least // 2 >= goal else position + units

    def _register(self, slot: SlotView, start: _Start, highest: float) -> None:
        begins = start.stage.start.position
        until = self._far(start.trial, begins, start.goal, start.way, highest)
        run = RequestedRun(start.trial, slot.id, begins, self._cluster.now, until)
        run.saves = self._saves(start.trial, begins, until)
        self._books.runs[start.trial] = run

    def _submit(self, start: _Start, decisions: dict[str, int]) -> None:
        run, begins = self._books.runs[start.trial], start.stage.start
        source = (begins.save, begins.position) if begins.save is not None else None
        self._cluster.start_job(
            start.trial,
            run.slot,
            until=run.until,
            allowed=decisions[start.trial],
            snapshot_at=run.saves,
            from_snapshot=source,
        )

    def _next_decisions(self) -> dict[str, int]:
        """Return, by trial of each run, the next position at which a tuner decides; the end of the run if there is none before it."""
        found = {}
        for run in self._books.runs.values():
            job = self._jobs[run.trial]
            position = job.position if job.state.live else run.start
            found[run.trial] = self._branch(run.trial).next_decision(run.trial, position, run.until)
        return found
