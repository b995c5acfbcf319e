"""A simulated node: its slots, runs, snapshots and failures."""

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
    """One simulated node. Its snapshots are in the store at once, so a failure loses runs but no snapshot.

    Args:
        world: The simulation.
        node: The id of the node.
        slots: The ids of its slots.
        speeds: The speed of each slot by id.
    """

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
        """The number of available slots; 0 while the node has failed."""
        return len(self._slots) if self._alive else 0

    def join(self) -> None:
        """Open a session with the scheduler, and schedule the next failure of the node if `Faults.node_failures` is above 0."""
        self.world.handle(NodeJoined(self.world.timeline.now, self.node, f"life-{self._life}", self._slots))
        rate = self.world.faults.node_failures
        if rate > 0:
            self.world.timeline.later(self._chance.expovariate(rate), self._fail)

    def carry(self, send: Send) -> None:
        """Receive the command that `send` contains for a run of the node, and apply it after `Costs.latency` seconds.

        The command is lost if the node fails within these seconds, and ignored if the run has ended by their end.
        """
        latency = self.world.costs.latency
        if latency:
            self.world.timeline.later(latency, self._take, self._life, send.run, send.body)
        else:
            self._take(self._life, send.run, send.body)

    def ship(self, order: ShipmentOrder) -> None:
        """Report to the scheduler that the upload of the snapshot that `order` names is done. The upload takes no virtual time."""
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
        """Return a new snapshot of a run. Its size is one byte, so that a quota in bytes limits the number of snapshots.

        Args:
            key: The key of the run.
            position: The position of the snapshot.
        """
        return SnapshotInfo(position, f"{key.job}.{key.attempt}@{position}", 1, "simulated")

    def left(self, run: SimulatedRun, reason: RunEndReason) -> None:
        """Remove a run that has ended, and end the other processes of its gang.

        Args:
            run: The run.
            reason: Why it ended.
        """
        self._runs.pop(run.key, None)
        self.world.measure.run_over(run.key, self.world.timeline.now, run.trained, reason)
        self.world.gang_left(run.key)

    def follow(self, key: RunKey) -> None:
        """End the process with this key, because another process of its gang has ended. No effect if the node does not run it."""
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
        """Simulate the failure of the node, which loses all its runs, and schedule its detection and the return of the node."""
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
    """Draw the seconds until a run is lost, which happens with probability `drop` in each second.

    Args:
        chance: The random number generator.
        drop: The probability, in (0, 1).
    """
    return math.log(1.0 - chance.random()) / math.log(1.0 - drop)
