"""A simulated training process: it uses the control logic of real runs, with a recorded lesson instead of a program.

A lesson is the complete training of a configuration: its reports and the training time before each.
"""

from __future__ import annotations

import bisect
import math
from typing import Final

from hopyard._runtime.runner.control import EndRun, Restate, RunControl, RunPlan, Save, Train
from hopyard.policy.vocabulary import Report, RunEndReason, RunKey, RunMode
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.effects import Amend, CommandBody, Decide, Kill, Start
from hopyard_engine.core.events import (
    Amended,
    Ended,
    Reports,
    RunBody,
    RunMessage,
    SnapshotStored,
    SnapshotTaken,
    Started,
)
from hopyard_engine.core.types import SnapshotInfo
from hopyard_simulator.environment import RunHost

_FORWARD_PASS: Final = 1 / 3
"""The part of a training iteration that its forward pass takes; the backward pass takes about twice as long."""


class SimulatedRun:
    """One process of a run, on one slot.

    It behaves like `hopyard._runtime.runner` with a program: `RunControl` decides the next action, messages have
    sequence numbers, and commands are processed one after the other. The constructor schedules the start of the
    training.

    Args:
        agent: The node of the process.
        key: The key of its channel: job, attempt and rank.
        start: The start command.
        pace: Factor by which an iteration takes longer than in the recorded training; less than 1: it is faster.
    """

    __slots__ = (
        "_agent",
        "_control",
        "_lesson",
        "_metric",
        "_pace",
        "_reports",
        "_sent",
        "_snapshot",
        "_start",
        "_stride",
        "_waits",
        "alive",
        "key",
        "trained",
    )

    def __init__(self, agent: RunHost, key: RunKey, start: Start, pace: float) -> None:
        self.key = key
        self.alive = True
        self.trained = 0
        self._agent = agent
        self._start = start
        self._sent = 0
        self._waits = False
        self._snapshot: SnapshotInfo | None = None
        self._pace = pace
        self._metric = agent.world.workload.metric
        # A gang over partitions trains one unit of each partition in an iteration.
        self._stride = len(start.rank_nodes) if start.place is not None else 1
        evaluate = start.mode is not RunMode.TRAIN
        position = start.snapshot.position if start.snapshot is not None else 0
        self._lesson = agent.world.lesson(start.hyperparameters)
        self._reports = bisect.bisect_right(self._lesson.positions, position)
        changes = {"until": 0} if evaluate else {}
        self._control = RunControl(RunPlan.of(start, position=position, evaluate=evaluate, **changes))
        costs = agent.world.costs
        delay = costs.start if start.snapshot is None else costs.resume
        if agent.world.from_scratch and position:
            delay += self._pace * math.fsum(self._lesson.seconds[index] for index in range(self._reports))
            self.trained = self._reports if key.rank == 0 else 0
        agent.world.timeline.later(delay, self._begin)

    # --------------------------------------------------------------------------------------------------------- training

    def _begin(self) -> None:
        if not self.alive:
            return
        world, position, snapshot = self._agent.world, self._control.position, self._start.snapshot
        self._control.started(finished=self._finished)
        got = snapshot.size if snapshot is not None and self._agent.node not in self._start.snapshot_nodes else 0
        from_store = bool(got) and not self._start.snapshot_nodes
        world.measure.run_loaded(self.key, world.timeline.now, got, from_store=from_store)
        self.say(Started(position, got, from_store))
        if self.key.rank == 0:
            self._go()

    def _go(self) -> None:
        """Perform the next action that `RunControl` decides: train, save, end, or wait for a command."""
        action = self._control.next()
        later = self._agent.world.timeline.later
        if type(action) is Train:
            if self._start.mode is not RunMode.TRAIN:
                seconds = self._evaluation if self._start.mode is RunMode.EVALUATE else 0.0
                later(seconds, self._evaluated, seconds)
                return
            if self._reports == len(self._lesson.positions):  # It is to train beyond the end of its curve.
                self.end(Ended(RunEndReason.UNTIL, self._control.position, finished=True))
                return
            self._control.began(committed=self._lesson.positions[self._following - 1])
            later(self._seconds, self._trained)
        elif type(action) is Save:
            later(self._agent.world.costs.snapshot, self._saved)
        elif type(action) is EndRun:
            leaving = action.reason is not RunEndReason.TERMINATED
            later(self._agent.world.costs.suspend if leaving else 0.0, self._leave, action)
        elif type(action) is Restate:
            self._report(self._control.position, {}, 0.0)
            self._go()
        else:
            self._waits = True

    def _trained(self) -> None:
        if not self.alive:
            return
        seconds, index = self._seconds, self._following - 1
        self.trained += self._following - self._reports
        self._reports = self._following
        self._report(self._lesson.positions[index], self._metrics(index), seconds)
        self._go()

    @property
    def _following(self) -> int:
        """The number of recorded reports, counted from position 0, that the run will have repeated after its next iteration."""
        return min(self._reports + self._stride, len(self._lesson.positions))

    @property
    def _seconds(self) -> float:
        """The duration of the next iteration in virtual seconds."""
        seconds = self._lesson.seconds
        return math.fsum([seconds[index] for index in range(self._reports, self._following)]) * self._pace

    @property
    def _evaluation(self) -> float:
        """The duration of an evaluation in virtual seconds (`Costs.evaluation`)."""
        given = self._agent.world.costs.evaluation
        if given is None:
            given = self._lesson.seconds[self._reports - 1] * _FORWARD_PASS if self._reports else 0.0
        return given * self._pace

    @property
    def _finished(self) -> bool:
        """True if the program has ended by itself: the recorded training has no more reports and ends before a job is complete."""
        positions = self._lesson.positions
        return self._reports >= len(positions) and positions[-1] < self._agent.world.max_position

    def _metrics(self, index: int) -> dict[str, float]:
        others = self._lesson.others
        more = {name: values[index] for name, values in others.items()} if others else {}
        return {self._metric: self._lesson.values[index], **more}

    def _report(self, position: int, metrics: dict[str, float], seconds: float) -> None:
        at_until = self._control.reached(position, finished=self._finished)
        report = Report(position, metrics, seconds, at_until=at_until, finished=self._finished)
        self.say(Reports((report,)))

    def _evaluated(self, seconds: float) -> None:
        if not self.alive:
            return
        position = self._control.position
        self._control.began()
        self._control.reached(position, finished=False)
        metrics = self._metrics(self._reports - 1) if self._reports else {}
        if self._start.mode is RunMode.PROFILE:
            units, index = self._lesson.seconds, self._reports
            metrics = {"seconds": units[index] * self._pace if index < len(units) else 0.0}
            if self._stride > 1:
                metrics["partitions"] = float(self._stride)
        self.say(Reports((Report(position, metrics, seconds, self._start.input, 1, at_until=True),)))
        self._go()

    def _saved(self) -> None:
        if not self.alive:
            return
        self._control.saved()
        self._snapshot = self._agent.save(self.key, self._control.position)
        self.say(SnapshotTaken(self._snapshot))
        if not self._start.ships_by_order:
            self.say(SnapshotStored(self._snapshot.position, self._snapshot.sha256))
        self._go()

    def _leave(self, end: EndRun) -> None:
        if self.alive:
            snapshot = self._snapshot if end.snapshot else None
            self.end(Ended(end.reason, self._control.position, snapshot))

    def lose(self) -> None:
        """Simulate the unexpected death of the process. No effect if it has ended."""
        if self.alive:
            self.end(
                Ended(
                    RunEndReason.LOST,
                    self._control.position,
                    cause=Reason.of(ReasonCode.RUN_MESSAGE, message="dropped"),
                )
            )

    def end(self, ended: Ended) -> None:
        """End the process, free its slot, and send the end message `ended`, which has the reason, to the scheduler."""
        self.alive = False
        self._agent.left(self, ended.reason)
        self.say(ended)

    # ----------------------------------------------------------------------------------------------------------- channel

    def say(self, body: RunBody) -> None:
        """Send a message with the next sequence number to the scheduler; `body` is its content."""
        self._sent += 1
        world, key = self._agent.world, self.key
        world.deliver(RunMessage(world.timeline.now, key.stream, key.job, key.attempt, key.rank, self._sent, body))

    def take(self, body: CommandBody) -> None:
        """Process a command of the scheduler. No effect if the process has ended."""
        if not self.alive:
            return
        if type(body) is Decide:
            self._control.decide(body.kind, body.position, body.allowed)
        elif type(body) is Amend:
            amended = self._control.amend(body.until or 0, body.snapshot_at)
            self.say(Amended(body.ticket, amended.accepted, amended.position))
        elif type(body) is Kill:
            cause = Reason.of(ReasonCode.RUN_MESSAGE, message=str(body.reason))
            self.end(Ended(RunEndReason.TERMINATED, self._control.position, cause=cause))
            return
        if self._waits:
            self._waits = False
            self._go()
