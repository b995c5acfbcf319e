"""A running simulation.

It replaces the scheduler's event loop. The core (the state machine of the engine) and the policy host (which calls the
policy) are those of a live scheduler.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hopyard.errors import HopyardError, InvalidInput
from hopyard.policy import Policy
from hopyard.policy.vocabulary import ExperimentState, RunKey, StreamId
from hopyard_engine.core import Core
from hopyard_engine.core.actions import target
from hopyard_engine.core.actions.prediction_requests import PREDICT
from hopyard_engine.core.effects import (
    Amend,
    AskOutside,
    Effect,
    JobChanged,
    OrdersGiven,
    ReportAccepted,
    Send,
    SetTimer,
    UpCall,
    Welcome,
)
from hopyard_engine.core.events import (
    Answered,
    DataChanged,
    Ended,
    Event,
    ExperimentJoined,
    PolicyFailed,
    RunMessage,
    StreamCreated,
    TimerElapsed,
)
from hopyard_engine.core.state.entities import Run
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.types import EarlierTrial, PlacedData, Settings
from hopyard_engine.explain.waiting_reasons import WaitingReasons
from hopyard_engine.policy_host import PolicyHost
from hopyard_simulator.conditions import Costs, Faults, Fleet
from hopyard_simulator.event_heap import EventHeap
from hopyard_simulator.metrics import Measurements
from hopyard_simulator.node import Agent
from hopyard_simulator.workload import Lesson, Workload, noisy

NAME = "simulation"


class SimulationError(HopyardError):
    """Raised when a simulation cannot continue, for example because its policy failed. The message has the reason and the time."""


class World:
    """One running simulation. Equal arguments produce equal results.

    Args:
        workload: The configurations and their training.
        policy: The policy.
        settings: The settings of the (first) experiment.
        fleet: The slots and their nodes.
        costs: The duration of operations.
        faults: The random faults.
        seed: Seed of the faults.
        answer: Answers an external request of the core, or raises InvalidInput.
        from_scratch: True if a resumed run trains again from position 0.
        details: True to collect all measurements (`Measurements.details`).
        data: The data set with the places of its replicas; None: there is none.
        speedup: Returns the factor (> 0) by which a run on a given number of slots is faster than on one.
        arrivals: Events of further experiments, each with its time in virtual seconds.
        earlier: Trials of earlier searches that the policy can reuse.
    """

    def __init__(
        self,
        workload: Workload,
        policy: Policy,
        settings: Settings,
        fleet: Fleet,
        costs: Costs,
        faults: Faults,
        *,
        seed: int,
        answer: Callable[[AskOutside], object],
        from_scratch: bool = False,
        details: bool = False,
        data: PlacedData | None = None,
        speedup: Callable[[int], float] = float,
        arrivals: Sequence[tuple[float, Event]] = (),
        earlier: tuple[EarlierTrial, ...] = (),
    ) -> None:
        self.workload = workload
        self.costs = costs
        self.faults = faults
        self.seed = seed
        self.max_position = settings.max_position
        self.from_scratch = from_scratch
        self.speedup = speedup
        self.timeline = EventHeap()
        self.measure = Measurements(settings.max_position, details)
        self.core = Core()
        self.events = 0
        self._settings = settings
        self._data = data
        self._arrivals = arrivals
        self._earlier = earlier
        self._to_join = sum(isinstance(event, ExperimentJoined) for _, event in arrivals)
        self._host = PolicyHost(policy, recorded=False)
        self._answer = answer
        self._pending: deque[Event] = deque()
        self._timers: dict[str, float] = {}
        self._lessons: dict[int, tuple[Mapping[str, Any], Lesson]] = {}
        self._metric = settings.metric
        self._gangs: dict[tuple[str, int], int] = {}
        slots = [slot for _, names in fleet.nodes() for slot in names]
        speeds = {slot: fleet.speeds[index % len(fleet.speeds)] for index, slot in enumerate(slots)}
        self._agents = {node: Agent(self, node, names, speeds) for node, names in fleet.nodes()}
        self._carry: dict[type[Any], Callable[[Any], None]] = {
            Send: self._send,
            AskOutside: self._ask,
            SetTimer: self._set_timer,
            ReportAccepted: self._accepted,
            Welcome: lambda _: None,
            OrdersGiven: self._order,
        }
        if details:
            self._carry[JobChanged] = self._job_changed

    @property
    def experiment(self) -> Stream:
        """The state of the simulated stream."""
        return self.core.streams[StreamId(NAME)]

    def run(self) -> Iterator[None]:
        """Run until the search has ended. Yield every few thousand actions, so that the caller can observe the simulation.

        Raises:
            SimulationError: The policy failed, or no further event can happen although the search has not ended.
            InvalidInput: The policy trains a configuration that the workload does not know.
        """
        self.measure.slots_changed(0.0, sum(agent.slots for agent in self._agents.values()))
        self.handle(StreamCreated(0.0, StreamId(NAME), self._settings, data=self._data, earlier=self._earlier))
        for at, event in self._arrivals:
            self.timeline.at(at, self._pending.append, event)
        for agent in self._agents.values():
            agent.join()
        step, pending = self.timeline.step, self._pending
        while True:
            while pending:
                self.handle(pending.popleft())
            if self.experiment.state.ended and len(self.experiment.experiments) > self._to_join:
                return
            if not step():
                waits = WaitingReasons(self.experiment, self.core.cluster, self.timeline.now).experiment(
                    self.experiment.founder
                )
                why = str(waits) if waits is not None else f"runs that wait for the policy: {len(self.experiment.live)}"
                raise SimulationError(f"after {self.timeline.now:g} s nothing happens any more; {why}")
            if self.timeline.now == math.inf:
                raise SimulationError(
                    "the time is beyond all numbers: seconds, costs or speeds are out of all proportion"
                )
            if self.timeline.taken % 4096 == 0:
                yield

    def handle(self, event: Event) -> None:
        """Make the core handle an event and the policy answer the resulting up-calls, then carry out the effects.

        Raises:
            SimulationError: The policy failed, or the experiment was paused.
        """
        core, host, carry = self.core, self._host, self._carry
        left = self._leaving_run(event)
        effects: list[Effect] = []
        calls: deque[UpCall] = deque()
        following: Event | None = event
        while following is not None:
            self.events += 1
            for effect in core.handle(following):
                if type(effect) is UpCall:
                    calls.append(effect)
                elif type(effect) in carry:
                    effects.append(effect)
            if following is event and left is not None:
                self._count_end(left)
            following = None
            while calls and following is None:
                call = calls.popleft()
                stream = self.experiment
                if stream.conversation.is_answered_by(call.number):
                    following = host.answer(stream, call)
                    if type(following) is PolicyFailed:
                        raise SimulationError(f"after {self.timeline.now:g} s: {following.reason}")
        stream = self.experiment
        if stream.state in (ExperimentState.PAUSED, ExperimentState.PAUSING):
            raise SimulationError(f"after {self.timeline.now:g} s: {stream.reason}")
        if self._data is not None:
            self.measure.hopped(stream.hops, self.timeline.now)
        self.measure.look(stream, self.timeline.now, lambda: host.confidences(stream, self.timeline.now))
        for effect in effects:
            carry[type(effect)](effect)

    def back(self, node: str) -> None:
        """Restore the data partitions of a node that has returned after a failure. No effect without partitioned data."""
        known = self.experiment.data
        if self._data is None or known is None:
            return
        held = [one for one in self._data.partitions if node in one.places]
        now = [known.partitions[one.name] for one in held]
        changed = [
            replace(one, places={**one.places, node: first.places[node]}) for one, first in zip(now, held, strict=True)
        ]
        self.handle(DataChanged(self.timeline.now, StreamId(NAME), tuple(changed)))

    def deliver(self, event: Event) -> None:
        """Make the core handle `event`, a message of a node, after the latency of the network (`Costs.latency`)."""
        if self.costs.latency:
            self.timeline.later(self.costs.latency, self._arrive, event)
        else:
            self._pending.append(event)

    def lesson(self, hyperparameters: Mapping[str, Any]) -> Lesson:
        """Return the complete training of a configuration: its reports and the training time before each.

        The reports have noise if `Faults.noise` is set.

        Raises:
            InvalidInput: The workload does not know the configuration.
        """
        known = self._lessons.get(id(hyperparameters))
        if known is not None:
            return known[1]
        lesson = self.workload.lesson(hyperparameters)
        if self.faults.noise:
            key = sorted(hyperparameters.items(), key=lambda item: item[0])
            lesson = noisy(lesson, self.faults.noise, random.Random(f"{self.seed}/noise/{key}"))
            self._lessons[id(hyperparameters)] = (hyperparameters, lesson)
        return lesson

    def gang_begins(self, key: RunKey, ranks: int) -> None:
        """Register the start of a process of a gang, so that `gang_left` can end the other processes of the gang.

        Args:
            key: The key of the process: job, attempt and rank.
            ranks: The number of processes (slots) of its run; 1: the run is no gang, and nothing is registered.
        """
        if ranks > 1:
            self._gangs[key.job, key.attempt] = ranks

    def gang_left(self, key: RunKey) -> None:
        """End the other processes of a gang, because the process with this key has ended. No effect if its run is no gang."""
        ranks = self._gangs.pop((key.job, key.attempt), 0)
        for rank in range(ranks):
            if rank != key.rank:
                for agent in self._agents.values():
                    agent.follow(key._replace(rank=rank))

    # ---------------------------------------------------------------------------------------------------------- inside

    def _leaving_run(self, event: Event) -> Run | None:
        """Return the run of which a process has ended, according to the event; None: the event says nothing about that."""
        if type(event) is not RunMessage or type(event.body) is not Ended:
            return None
        run = self.experiment.live.get(event.job)
        return run if run is not None and run.attempt == event.attempt else None

    def _count_end(self, run: Run) -> None:
        """Count a run if all its processes have left their slots."""
        stream = self.experiment
        if stream.live.get(run.job) is not run:
            self.measure.run_left(stream.jobs[run.job], run)

    def _arrive(self, event: Any) -> None:
        self._pending.append(replace(event, at=self.timeline.now))

    def _send(self, effect: Send) -> None:
        self.core.acknowledge(effect.run, effect.sequence)
        if type(effect.body) is Amend:
            self.measure.amended(effect.run.job, effect.body.until)
        self._agents[effect.node].carry(effect)

    def _order(self, effect: OrdersGiven) -> None:
        for order in self.core.orders(effect.node):
            self._agents[effect.node].ship(order)

    def _set_timer(self, effect: SetTimer) -> None:
        if effect.at is None:
            self._timers.pop(effect.ticket, None)
        else:
            self._timers[effect.ticket] = effect.at
            self.timeline.at(effect.at, self._elapsed, effect.ticket, effect.at)

    def _elapsed(self, ticket: str, at: float) -> None:
        if self._timers.get(ticket) == at:
            del self._timers[ticket]
            self._pending.append(TimerElapsed(self.timeline.now, StreamId(NAME), ticket))

    def _ask(self, effect: AskOutside) -> None:
        error, result = "", None
        try:
            result = self._answer(effect)
        except InvalidInput as found:
            error = str(found)
        delay = self.costs.prediction if effect.kind == PREDICT else 0.0 if effect.experiment else self.costs.solution
        if delay:
            self.timeline.later(delay, self._answered, effect.ticket, result, error)
        else:
            self._answered(effect.ticket, result, error)

    def _answered(self, ticket: str, result: object, error: str) -> None:
        self._pending.append(Answered(self.timeline.now, StreamId(NAME), ticket, result, error))

    def _job_changed(self, effect: JobChanged) -> None:
        if not effect.removed:
            self.measure.labelled(self.experiment.jobs[effect.job], self.timeline.now)

    def _accepted(self, effect: ReportAccepted) -> None:
        stream, report = self.experiment, effect.report
        job = stream.jobs[effect.job]
        # Evaluations by parts are combined.
        value = job.curve.points[report.position].metrics.get(self._metric, math.nan)
        reached = target.at(stream, job, report.position, value) is not None
        self.measure.reported(effect.job, report, self._metric, self.timeline.now, reached=reached)
