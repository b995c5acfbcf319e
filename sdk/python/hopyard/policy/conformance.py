"""The test suite for scheduling policies.

Subclass it in a test module that pytest runs:

    class TestMine(PolicyConformance):
        def make_policy(self) -> Policy:
            return MyPolicy(eta=3)

It needs pytest, and runs the policy on the virtual cluster of `hopyard.policy.testing`.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final, Literal

import pytest

from hopyard.policy.base import Policy
from hopyard.policy.testing import (
    Delays,
    HistoryEntry,
    TrainingFailed,
    Unanswered,
    VirtualCluster,
    VirtualStep,
    counting,
    replay,
)
from hopyard.policy.testing.determinism import Answers, Task, answers, first_difference, may_terminate, terminations
from hopyard.policy.testing.purity import impurities
from hopyard.policy.vocabulary import (
    Ask,
    Command,
    CreateJob,
    Hyperparameters,
    JobState,
    Predict,
    RunEndReason,
    StartJob,
)

_BROKEN_OFF = (RunEndReason.LOST, RunEndReason.FAILED, RunEndReason.PREEMPTED)
_SCHEDULES = 12
_SEARCHED = 60

IN_PROCESSES: Final = (
    "test_same_up_calls_same_answers",
    "test_answers_do_not_depend_on_hash_order",
    "test_rebuilt_policy_goes_on_the_same",
)
"""The tests of the suite that start processes, three for all of them."""


class PolicyConformance:
    """The tests that every policy must pass. Subclass it in a test module, and define `make_policy`.

    Define the subclass at the top level of its module, because the tests `IN_PROCESSES` import it in other processes.

    Attributes:
        max_position: The position at which a job is complete in these tests.
        leaves_jobs: Whether jobs may still wait when the experiment ends, as the worse ones of successive halving do. A job
            whose last run was lost, failed or preempted before its `until` position must still continue.
        symmetric: Whether maximizing a metric and minimizing its negative must lead to the same decisions.
        normalizes: Whether decisions must be the same on every linear scale of a metric whose range is known.
        terminates: Whether the policy terminates jobs by a rule; None: if its source says so. It must then terminate a job in each
            schedule of the tests of determinism.
        seeds: The seeds of these schedules (`eventful`).
    """

    max_position: ClassVar[int] = 4
    leaves_jobs: ClassVar[bool] = False
    symmetric: ClassVar[bool] = True
    normalizes: ClassVar[bool] = True
    terminates: ClassVar[bool | None] = None
    seeds: ClassVar[tuple[int, ...]] = (10, 14, 19)

    # ------------------------------------------------------------------------------------ methods to define or override

    def make_policy(self) -> Policy:
        """Return a new policy with the same parameters at each call. It must not share state with other instances."""
        raise NotImplementedError("a subclass of PolicyConformance must define make_policy")

    def curve(self, hyperparameters: Hyperparameters, position: int) -> VirtualStep:
        """Return the iteration of a job that ends at a position: its metrics and its duration.

        By default every configuration has a different duration per iteration and a different limit of its metric.

        Args:
            hyperparameters: The configuration; by default `{"x": n}` with n = 1, 2, ...
            position: The position at the end of the iteration.
        """
        x = int(hyperparameters["x"])
        ceiling = 0.5 + (x * 7 % 11) / 25
        return VirtualStep(
            {"accuracy": ceiling * (1 - math.exp(-position / 3))}, seconds=1 + (x * 5 % 4) / 4, examples=100
        )

    def respond(self, question: Predict | Ask) -> object:
        """Return the result of `question`, a command of the policy.

        By default every request fails, and the policy must tolerate that.

        Raises:
            Unanswered: The request fails. The message is the `error` of the up-call that the policy gets.
        """
        raise Unanswered(f"nobody answers a {type(question).__name__}")

    def cluster(self, policy: Policy | None = None, **changes: Any) -> VirtualCluster:
        """Create a virtual cluster with two slots and six jobs.

        Args:
            policy: The policy; None: a new one from `make_policy`.
            **changes: Arguments of `VirtualCluster` that replace these defaults.
        """
        curve = changes.pop("curve", self.curve)
        if changes.get("mode") == "min":
            curve = _negative(curve)
        terms: dict[str, Any] = {"slots": 2, "jobs": 6, "max_position": self.max_position, "respond": self.respond}
        return VirtualCluster(policy or self.make_policy(), curve=curve, **{**terms, **changes})

    # ------------------------------------------------------------------------------------------------------- completion

    @pytest.mark.parametrize(
        ("slots", "jobs"),
        [(1, 1), (1, 5), (2, 6), (3, 10), (8, 3), (20, 20)],
        ids=lambda number: str(number),
    )
    def test_experiment_drains(self, slots: int, jobs: int) -> None:
        """Check that every job ends, with one slot, many slots, one job, and more slots than jobs."""
        cluster = self.cluster(slots=slots, jobs=jobs)
        self.finish(cluster)
        assert cluster.jobs, "no job was ever created"

    def test_no_slot_idles_forever_while_a_job_waits(self) -> None:
        """Check that, with enough jobs, as many slots as the policy demands run a job at some time, and none is reserved at the end."""
        cluster = self.cluster(slots=4, jobs=16)
        history = self.finish(cluster)
        demands = [entry.demand for entry in history]
        wanted = 4 if None in demands else min(4, max(d for d in demands if d is not None))
        used = {slot for run in cluster.runs for slot in run.slots}
        assert len(used) >= wanted, f"{wanted} slots were demanded, but only {sorted(used)} ever ran a job"

    def test_slow_services(self) -> None:
        """Check that every job ends if starts, saves, configurations and answers take time."""
        self.finish(self.cluster(delays=Delays(start=0.7, save=0.4, store=3, create=1.1, answer=0.9, amend=0.3)))

    def test_survives_late_answers(self) -> None:
        """Check that every job ends if predictions and other answers arrive very late."""
        self.finish(self.cluster(delays=Delays(answer=50, amend=6, create=5)))

    def test_survives_an_early_end_of_training(self) -> None:
        """Check that every job ends if a training process has nothing left to train before the last position."""

        def short(hyperparameters: Hyperparameters, position: int) -> VirtualStep:
            step = self.curve(hyperparameters, position)
            return VirtualStep(step.metrics, step.seconds, finished=hyperparameters["x"] == 2 and position >= 2)

        self.finish(self.cluster(curve=short))

    # ----------------------------------------------------------------------------------------------------------- faults

    @pytest.mark.parametrize("snapshot_every", [0, 1])
    def test_survives_lost_runs(self, snapshot_every: int) -> None:
        """Check that every job ends if runs and slots are lost. The jobs continue from a snapshot or from the beginning.

        Args:
            snapshot_every: Number of positions between saves during a run; 0: no such saves.
        """
        cluster = self.cluster(slots=3, snapshot_every=snapshot_every, max_losses=20)
        for time, job in ((0.5, "1"), (1.6, "2"), (1.6, "3"), (2.2, "1"), (4.9, "4"), (5.1, "1"), (6.3, "2")):
            cluster.at(time, cluster.lose_run, job)
        cluster.at(3.3, cluster.lose_slot, "m02")
        self.finish(cluster)

    def test_survives_a_save_that_is_lost(self) -> None:
        """Check that every job ends if a snapshot is lost with its slot before it is stored. The job then has an earlier position."""
        cluster = self.cluster(slots=3, delays=Delays(store=2, save=0.2), max_losses=20)
        for time, slot in ((1.8, "m01"), (2.9, "m02"), (4.4, "m03")):
            cluster.at(time, cluster.lose_slot, slot)
            cluster.at(time + 1, cluster.join_slot, slot)
        self.finish(cluster)

    @pytest.mark.parametrize("max_failures", [0, 2])
    def test_survives_failing_jobs(self, max_failures: int) -> None:
        """Check that the experiment ends if the user's code raises errors. A job with more than `max_failures` failures is FAILED."""

        def failing(hyperparameters: Hyperparameters, position: int) -> VirtualStep:
            if hyperparameters["x"] in (1, 4) and position == 2:
                raise TrainingFailed("ValueError: the loss is gone")
            return self.curve(hyperparameters, position)

        cluster = self.cluster(curve=failing, max_failures=max_failures)
        self.finish(cluster)

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
    def test_survives_metrics_that_are_not_finite(self, value: float) -> None:
        """Check that every job ends if metrics are `value` (NaN or infinite) from some position on, for one job or for all."""
        for bad in ((1,), (2, 5), tuple(range(1, 7))):
            for first in (1, 3):

                def curve(
                    hyperparameters: Hyperparameters, position: int, bad: tuple[int, ...] = bad, first: int = first
                ) -> VirtualStep:
                    step = self.curve(hyperparameters, position)
                    hit = hyperparameters["x"] in bad and position >= first
                    return VirtualStep(dict.fromkeys(step.metrics, value) if hit else step.metrics, step.seconds)

                self.finish(self.cluster(curve=curve))

    @pytest.mark.parametrize("configurations", [0, 1, 4])
    def test_stops_when_the_generator_is_exhausted(self, configurations: int) -> None:
        """Check that the experiment ends if the generator runs out of configurations before all allowed jobs are created.

        Args:
            configurations: Number of configurations that the generator has.
        """
        cluster = self.cluster(
            slots=3,
            jobs=12,
            generator=lambda made: counting(made) if made < configurations else None,
            delays=Delays(create=0.3),
        )
        self.finish(cluster)

    def test_survives_slots_that_come_and_go(self) -> None:
        """Check that every job ends if slots join and are lost. At times there is no slot."""
        cluster = self.cluster(slots=1, jobs=10, max_losses=20, snapshot_every=1)
        for number in range(2, 6):
            cluster.at(number, cluster.join_slot, f"m{number:02}")
        for number, slot in enumerate(("m01", "m03", "m04", "m02", "m05")):
            cluster.at(6.5 + number / 2, cluster.lose_slot, slot)
        cluster.at(12, cluster.join_slot, "m09")
        cluster.at(13, cluster.join_slot, "m01")
        self.finish(cluster)

    def test_survives_a_share_that_shrinks_and_grows(self) -> None:
        """Check that every job ends if the share decreases to one slot and to none, with a deadline, and increases again."""
        cluster = self.cluster(slots=4, jobs=10)
        for time, slots in ((1.5, 1), (5.2, 4), (6.1, 0), (9.0, 2), (9.1, 3)):
            cluster.at(time, cluster.set_share, slots)
        self.finish(cluster)

    def test_survives_a_pause(self) -> None:
        """Check that every job ends if the experiment is paused and resumed."""
        cluster = self.cluster(slots=3)
        for start, end in ((0.2, 1.0), (3.4, 9.0)):
            cluster.at(start, cluster.pause)
            cluster.at(end, cluster.resume)
        self.finish(cluster)

    def test_survives_refused_commands(self) -> None:
        """Check that every job ends if the engine sometimes refuses to start or create a job, as if its state had changed."""
        seen = {StartJob: 0, CreateJob: 0}

        def refuse(command: Command) -> str:
            if isinstance(command, StartJob | CreateJob):
                seen[type(command)] += 1
                if seen[type(command)] in (1, 3, 4, 8):
                    return "the core's state has moved on"
            return ""

        self.finish(self.cluster(slots=3, refuse=refuse))

    def test_goes_on_when_the_experiment_is_extended(self) -> None:
        """Check that a finished experiment that is extended creates the additional jobs, and then trains its jobs further."""
        cluster = self.cluster()
        self.finish(cluster)
        before = cluster.terms.jobs_left
        cluster.at(cluster.now + 1, cluster.extend, 4)
        self.finish(cluster)
        assert cluster.terms.jobs_left < before + 4, "4 more jobs may be created, but none was"
        cluster.at(cluster.now + 1, cluster.extend, 0, self.max_position + 2)
        self.finish(cluster)

    @pytest.mark.parametrize("seed", range(_SCHEDULES))
    def test_random_schedules(self, seed: int) -> None:
        """Check that every job ends in a random schedule of faults, changes and delays. The seed in a failure reproduces it."""
        self.finish(self.eventful(seed))

    # ---------------------------------------------------------------------------------------------- answers to up-calls

    def test_commands_are_legal(self) -> None:
        """Check that every command and decision is legal in the state that the policy was shown."""
        for changes in (
            {},
            {"slots": 1},
            {"slots": 9},
            {"snapshot_every": 1},
            {"delays": Delays(1, 1, 1, 1, 1, 1)},
        ):
            self.cluster(**changes).run()

    def test_demand_is_a_count_or_none(self) -> None:
        """Check that `demand` is None or an int of at least 0 after each up-call, and None or 0 at the end, when no job is left."""
        last = self.finish(self.cluster())[-1]
        assert last.demand in (0, None), f"demand was {last.demand} at the end, when no job is left"

    def test_metric_modes(self) -> None:
        """Check that experiments end in both modes and, if `symmetric`, that minimizing the negative metric decides the same."""
        answers = {}
        modes: tuple[Literal["max", "min"], ...] = ("max", "min")
        for mode in modes:
            history = self.finish(self.cluster(slots=3, jobs=10, mode=mode))
            answers[mode] = [entry.answer for entry in history]
        if self.symmetric:
            same = zip(answers["max"], answers["min"], strict=False)
            first = next((f"{number}: {a} and {b}" for number, (a, b) in enumerate(same, 1) if a != b), "")
            assert answers["max"] == answers["min"], f"max and min differ at up-call {first or 'the last'}"

    def test_metric_scales(self) -> None:
        """Check that, if `normalizes`, the scale of a metric with a known range does not change the decisions.

        The metric is rounded so that no scale rounds it further. Target, kill threshold and targets of predictions are on its scale.
        """
        if not self.normalizes:
            return
        unit, reward = (self._decided_on_a_scale(*scale) for scale in ((1.0, 0.0), (512.0, -384.0)))
        first = next(
            (f"{number}: {a} and {b}" for number, (a, b) in enumerate(zip(unit, reward, strict=False), 1) if a != b), ""
        )
        assert unit == reward, f"a metric in 0..1 and the same in -384..128 differ at up-call {first or 'the last'}"

    def _decided_on_a_scale(self, factor: float, offset: float) -> list[tuple[object, ...]]:
        """Return the answers of the policy if the metric is `factor` times the usual one plus `offset`, and has a known range."""

        def curve(hyperparameters: Hyperparameters, position: int) -> VirtualStep:
            step, name = self.curve(hyperparameters, position), cluster.terms.metric
            value = step.metrics.get(name, math.nan)
            if not math.isfinite(value):
                return step
            return replace(step, metrics={**step.metrics, name: factor * round(value * 1024) / 1024 + offset})

        def unscaled(command: Command) -> Command:
            if not isinstance(command, Predict) or "target" not in command.parameters:
                return command
            target = (command.parameters["target"] - offset) / factor
            return replace(command, parameters={**command.parameters, "target": target})

        def scaled(value: float | None) -> float | None:
            return None if value is None else factor * value + offset

        cluster = self.cluster(slots=3, jobs=10, curve=curve, low=offset, high=factor + offset)
        terms = cluster.terms
        cluster.terms = replace(terms, target=scaled(terms.target), kill_threshold=scaled(terms.kill_threshold))
        return [
            (entry.decision, tuple(map(unscaled, entry.commands)), entry.demand, entry.gang, entry.nodes)
            for entry in self.finish(cluster)
        ]

    def test_determinism_cases_terminate_jobs(self) -> None:
        """Check that, if `terminates`, the policy terminates a job in each schedule of the tests of determinism.

        Otherwise these tests would not show that its rule is deterministic.
        """
        if not (may_terminate(type(self.make_policy())) if self.terminates is None else self.terminates):
            return
        without = [seed for seed in self.seeds if not terminations(self.eventful(seed).run())]
        assert not without, (
            f"the policy terminates no job in the schedules with the seeds {without}: {self._advice_on_seeds()}"
        )

    def _advice_on_seeds(self) -> str:
        count = len(self.seeds)
        others = (seed for seed in range(_SEARCHED) if terminations(self.eventful(seed).run()))
        found = tuple(itertools.islice(others, count))
        if len(found) == count:
            return f"set `seeds = {found}`"
        return "override `curve` or `respond` so that it does, or set `terminates = False`"

    def test_same_up_calls_same_answers(self) -> None:
        """Check that new policies give the same answers to the same up-calls as one in a fresh process.

        They run in another process, in which other experiments have run before, so that memory shared between instances is found.
        """
        recorded, repeated = self._answers("record"), self._answers("repeat")
        for number in range(len(self.seeds)):
            for again in ("run", "replay"):
                found = first_difference(recorded[f"{number}"], repeated[f"{again} {number}"])
                assert not found, f"the same up-calls were answered differently: {found}"

    def test_answers_do_not_depend_on_hash_order(self) -> None:
        """Check that the answers do not depend on the hash seed of the process, and so not on the order of a set."""
        recorded, other = self._answers("record"), self._answers("record", hash_seed="2")
        for number in range(len(self.seeds)):
            found = first_difference(recorded[f"{number}"], other[f"{number}"])
            assert not found, f"the hash seed changes the answers: {found}"

    def test_reads_no_clock_no_global_chance_and_no_file(self) -> None:
        """Check that the policy uses only `cluster.now` for time and `cluster.rng` for random numbers, and opens no file."""
        history = self.eventful(1).run()
        policy = self.make_policy()
        with impurities() as found:
            replay(policy, history)
        assert not found, f"a policy must be deterministic given its up-calls, but it called {', '.join(found)}"

    def test_changes_nothing_that_it_was_given(self) -> None:
        """Check that the policy does not modify the views, reports and hyperparameters that it receives."""
        self.finish(self.eventful(2, watch=True))

    def test_rebuilt_policy_goes_on_the_same(self) -> None:
        """Check that a new policy that gets all recorded up-calls, as after a crash, continues with the same answers as the old one."""
        recorded, repeated = self._answers("record"), self._answers("repeat")
        for number in range(len(self.seeds)):
            found = first_difference(recorded[f"{number}"], repeated[f"rebuilt {number}"])
            assert not found, f"the rebuilt policy went another way: {found}"

    def _answers(self, task: Task, hash_seed: str = "1") -> Mapping[str, Answers]:
        suite = type(self)
        return answers(suite.__module__, suite.__qualname__, task, hash_seed, self.seeds)

    # ---------------------------------------------------------------------------------------------------------- helpers

    def finish(self, cluster: VirtualCluster) -> list[HistoryEntry]:
        """Run the experiment of a virtual cluster until it ends, and return its history.

        Raises:
            AssertionError: At the end a slot is reserved, or a job has not ended although it must (`leaves_jobs`).
            Exception: Any exception of `VirtualCluster.run`.
        """
        history = cluster.run()
        last = {run.job: run for run in cluster.runs}
        reserved = [slot.id for slot in cluster.slots.values() if slot.reserved]
        assert not reserved, f"slots {reserved} are still reserved at the end"
        for job in cluster.jobs.values():
            if job.state.ended:
                continue
            where = f"job {job.id} is left {job.state.value} at position {job.position}"
            assert job.state is not JobState.CREATING, where
            run = last.get(job.id)
            broken_off = run is not None and run.reason in _BROKEN_OFF and job.high_water < run.until
            assert run is None or not broken_off, f"{where} after its run was {run.reason.value}"
            assert self.leaves_jobs, f"{where}: {cluster.over}"
        return history

    def eventful(self, seed: int, watch: bool = False) -> VirtualCluster:
        """Create a virtual cluster with a random schedule of faults, changes and delays.

        Args:
            seed: Determines the schedule.
            watch: Whether the cluster checks that the policy does not modify what it is given.
        """
        rng = random.Random(f"eventful/{seed}")
        fails = {(rng.randint(1, 12), rng.randint(1, self.max_position)) for _ in range(rng.randint(0, 3))}
        nans = {(rng.randint(1, 12), rng.randint(1, self.max_position)) for _ in range(rng.randint(0, 3))}
        configurations = rng.choice([3, 100, 100])

        def curve(hyperparameters: Hyperparameters, position: int) -> VirtualStep:
            if (hyperparameters["x"], position) in fails:
                raise TrainingFailed("ValueError")
            step = self.curve(hyperparameters, position)
            hit = (hyperparameters["x"], position) in nans
            return VirtualStep(dict.fromkeys(step.metrics, math.nan) if hit else step.metrics, step.seconds)

        times = [rng.choice([0.0, 0.0, 0.3, 2.0]) for _ in range(6)]
        slots, jobs = rng.randint(1, 6), rng.randint(1, 12)
        cluster = self.cluster(
            slots=slots,
            jobs=jobs,
            curve=curve,
            generator=lambda made: counting(made) if made < configurations else None,
            seed=seed,
            snapshot_every=rng.choice([0, 1, 2]),
            max_losses=50,
            max_failures=rng.choice([0, 1, 3]),
            delays=Delays(*times),
            watch=watch,
        )
        happenings: list[Callable[[], tuple[Any, ...]]] = [
            lambda: (cluster.lose_run, str(rng.randint(1, jobs))),
            lambda: (cluster.lose_run, str(rng.randint(1, jobs))),
            lambda: (cluster.lose_slot, f"m{rng.randint(1, slots):02}"),
            lambda: (cluster.join_slot, f"m{rng.randint(1, 8):02}"),
            lambda: (cluster.set_share, rng.randint(0, slots + 1)),
            lambda: (cluster.pause,),
            lambda: (cluster.resume,),
            lambda: (cluster.extend, rng.randint(1, 3)),
        ]
        for _ in range(rng.randint(0, 10)):
            action, *arguments = rng.choice(happenings)()
            cluster.at(round(rng.uniform(0, 14), 2), action, *arguments)
        cluster.at(15, cluster.resume)
        cluster.at(15, cluster.join_slot, "m90")
        cluster.at(15.5, cluster.set_share, 3)
        return cluster


def _negative(curve: Callable[[Hyperparameters, int], VirtualStep]) -> Callable[[Hyperparameters, int], VirtualStep]:
    def negative(hyperparameters: Hyperparameters, position: int) -> VirtualStep:
        step = curve(hyperparameters, position)
        metrics = {name: -value for name, value in step.metrics.items()}
        return VirtualStep(metrics, step.seconds, step.finished, step.examples)

    return negative
