"""A simulated node: its slots, snapshots, runs and failures."""

from __future__ import annotations

import math
import random

from hopyard.policy.vocabulary import RunEndReason, RunKey
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.effects import CommandBody, Send, ShipmentOrder, Start
from hopyard_engine.core.events import Ended, NodeExpired, NodeJoined, SnapshotShipped
from hopyard_engine.core.types import SlotSpec, SnapshotInfo
from hopyard_simulator.environment import Environment
from hopyard_simulator.run import SimulatedRun


class Agent:
    """One node. Its snapshots are stored at once, so a failure loses runs but no snapshot."""

    def __init__(self, world: Environment, node: str, slots: tuple[str, ...], speeds: dict[str, float]) -> None:
        self.world = world
        self.node = node
        self._slots = tuple(SlotSpec(slot) for slot in slots)
        self._speeds = speeds
        self._runs: dict[RunKey, SimulatedRun] = {}
        self._life = 1
        self._alive = True
        self._chance = random.Random(f"{world.seed}/node/{node}")

    @property
    def slots(self) -> int:
        """The number of slots that it has now."""
        return len(self._slots) if self._alive else 0

    def join(self) -> None:
        """Open a session."""
        self.world.handle(NodeJoined(self.world.timeline.now, self.node, f"life-{self._life}", self._slots))
        rate = self.world.faults.node_failures
        if rate > 0:
            self.world.timeline.later(self._chance.expovariate(rate), self._fail)

    def carry(self, send: Send) -> None:
        """Receive a command for one of its runs."""
        latency = self.world.costs.latency
        if latency:
            self.world.timeline.later(latency, self._take, self._life, send.run, send.body)
        else:
            self._take(self._life, send.run, send.body)

    def ship(self, order: ShipmentOrder) -> None:
        """Report an ordered upload as done."""
        self.world.deliver(
            SnapshotShipped(
                self.world.timeline.now,
                order.stream,
                self.node,
                order.number,
                order.job,
                order.position,
                order.sha256,
            )
        )

    def save(self, key: RunKey, position: int) -> SnapshotInfo:
        """Return a new snapshot of a run; its size is one byte, so that a quota in bytes counts snapshots."""
        return SnapshotInfo(position, f"{key.job}.{key.attempt}@{position}", 1, "simulated")

    def left(self, run: SimulatedRun, reason: RunEndReason) -> None:
        """Remove an ended run; the other ranks of its gang end too."""
        self._runs.pop(run.key, None)
        self.world.measure.run_over(run.key, self.world.timeline.now, run.trained, reason)
        self.world.gang_left(run.key)

    def follow(self, key: RunKey) -> None:
        """End a run because another rank of its gang has ended."""
        run = self._runs.get(key)
        if run is not None:
            cause = Reason.of(ReasonCode.RUN_MESSAGE, message="the gang has ended")
            run.end(Ended(RunEndReason.UNTIL, 0, cause=cause))

    def _take(self, life: int, key: RunKey, body: CommandBody) -> None:
        if not self._alive or life != self._life:  # Commands in transit to a failed node are lost.
            return
        if isinstance(body, Start):
            self._start(key, body)
            return
        run = self._runs.get(key)
        if run is not None:
            run.take(body)

    def _start(self, key: RunKey, start: Start) -> None:
        faults, chance = self.world.faults, None
        if faults.straggling or faults.drop:
            chance = random.Random(f"{self.world.seed}/run/{key.job}/{key.attempt}")
        slower = 1.0 + abs(chance.gauss(0.0, faults.straggling)) if chance is not None else 1.0
        pace = slower / (self._speeds[start.slot] * self.world.speedup(len(start.rank_nodes)))
        self.world.gang_begins(key, len(start.rank_nodes))
        run = self._runs[key] = SimulatedRun(self, key, start, pace)
        self.world.measure.run_begins(key, start, self.world.timeline.now)
        if chance is not None and faults.drop:
            self.world.timeline.later(_until_dropped(chance, faults.drop), run.lose)

    def _fail(self) -> None:
        """Fail with all runs."""
        self._alive = False
        now = self.world.timeline.now
        for run in list(self._runs.values()):
            run.alive = False
            self.world.measure.run_over(run.key, now, run.trained, RunEndReason.LOST)
        self._runs.clear()
        self.world.measure.slots_changed(now, -len(self._slots))
        self.world.timeline.later(self.world.costs.detection, self._taken_for_lost)
        if self.world.faults.downtime < math.inf:
            self.world.timeline.later(max(self.world.faults.downtime, self.world.costs.detection), self._rise)

    def _taken_for_lost(self) -> None:
        self.world.handle(NodeExpired(self.world.timeline.now, self.node))

    def _rise(self) -> None:
        self._alive = True
        self._life += 1
        self.world.measure.slots_changed(self.world.timeline.now, len(self._slots))
        self.join()
        self.world.back(self.node)


def _until_dropped(chance: random.Random, drop: float) -> float:
    """Return the seconds until a run is lost, with probability `drop` in each second."""
    return math.log(1.0 - chance.random()) / math.log(1.0 - drop)
