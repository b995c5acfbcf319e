"""A simulated node agent: slots, a disk, channels, and one session with the scheduler.

Without a connection its runs continue to train. When it connects again, the scheduler names the runs that were declared lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hopyard.policy.vocabulary import RunKey
from hopyard_engine.core.effects import CommandBody, ShipmentOrder, Start
from hopyard_engine.core.events import NodeJoined, RunBody, RunMessage, SnapshotShipped, SnapshotStored
from hopyard_engine.core.types import SlotSpec
from tests.simulation.faults import LEASE, Rates
from tests.simulation.process import Process
from tests.simulation.training import Blob, Store
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.scheduler import Scheduler


class Agent:
    """Simulates one node. Its session is a number; messages of an older session are dropped."""

    def __init__(
        self, world: World, rates: Rates, node: str, slots: int, store: Store, agents: dict[str, Agent]
    ) -> None:
        self.world = world
        self.rates = rates
        self.node = node
        self.slots = tuple(SlotSpec(f"{node}/{n}") for n in range(slots))
        self.specs = self.slots  # The slots that it announces in this incarnation.
        self.store = store
        self.agents = agents
        self.scheduler: Scheduler | None = None
        self.alive = True
        self.partitioned = False
        self.life = 1
        self.released_in = 0  # The life in which the scheduler let it end.
        self.disk: dict[str, Blob] = {}
        self.evicted: set[str] = set()  # Evicted; the scheduler may not know it yet.
        self.needed_by: dict[str, set[str]] = {}  # Experiments whose runs took or fetched a copy here.
        self.channels: dict[RunKey, Process] = {}
        self.on_slot: dict[str, Process] = {}
        self.session: int | None = None
        self.welcomed = False
        self.incarnation_known = 0
        self.forgotten: set[RunKey] = set()
        self.carried_out: set[tuple[RunKey, int]] = set()  # In all incarnations.
        self.orders: dict[
            tuple[str, int], SnapshotShipped | None
        ] = {}  # None: in progress; else the answer, not acknowledged.
        self._sessions = 0
        self._out = 0.0
        self.inbound = 0.0

    # --------------------------------------------------------------------------------------------------------- session

    def connect(self) -> None:
        """Open a session, or try again later."""
        if not self.alive or self.session is not None:
            return
        scheduler = self.scheduler
        assert scheduler is not None
        if self.partitioned or scheduler.core is None:
            self.world.later(self.world.rng.uniform(0.3, 1.0), self.connect)
            return
        self._sessions += 1
        self.session = self._sessions
        self.welcomed = False
        self._out = self.world.now
        hello = NodeJoined(
            0.0, self.node, f"life-{self.life}", self.specs, tuple(self.channels), tuple(sorted(self.disk))
        )
        self._post(scheduler.hello, self, self.session, hello)

    def drop(self) -> None:
        """Break the session; both sides detect it."""
        if self.session is None:
            return
        self.world.note("session of", self.node, "drops")
        self.session, self.welcomed = None, False
        assert self.scheduler is not None
        self.scheduler.session_dropped(self.node)
        self.world.later(self.world.rng.uniform(0.2, 1.0), self.connect)

    def welcome(self, session: int, unknown: tuple[RunKey, ...]) -> None:
        """Take the scheduler's answer to the hello: end the runs that it does not know, and send all unacknowledged messages again."""
        if session != self.session:
            return
        self.welcomed = True
        for key in unknown:
            process = self.channels.get(key)
            if process is not None:
                process.kill()
                self.left(process)
                self._orphans(process)
                self.forget(key)
        for process in self.channels.values():
            for sequence, body in process.unacknowledged.items():
                self.send_message(process.key, sequence, body)
        for answer in self.orders.values():
            self._send_shipped(answer)

    # -------------------------------------------------------------------------------------------------------- out, in

    def _post(self, action: Callable[..., None], *arguments: object) -> None:
        """Deliver something after all earlier messages of the session."""
        self._out = max(self._out + 1e-6, self.world.now + self.world.rng.uniform(0.01, 0.05))
        self.world.later(self._out - self.world.now, action, *arguments)

    def send_message(self, key: RunKey, sequence: int, body: RunBody) -> None:
        """Send a message of a run over the faulty network, if a session is open."""
        if not self.welcomed:
            return
        assert self.scheduler is not None
        event = RunMessage(0.0, *key, sequence, body)
        unreliable(self, self._post, self.scheduler.message, self, event)

    def send_ack(self, key: RunKey, sequence: int) -> None:
        """Acknowledge the commands of a run."""
        if self.welcomed:
            assert self.scheduler is not None
            unreliable(self, self._post, self.scheduler.acknowledged, key, sequence)

    def command(self, session: int, key: RunKey, sequence: int, body: CommandBody) -> None:
        """Take a command of the scheduler."""
        if session != self.session or not self.alive:
            return
        process = self.channels.get(key)
        if process is not None:
            process.take(sequence, body)
        elif isinstance(body, Start) and sequence == 1 and key not in self.forgotten:
            self._start(key, body)

    def _start(self, key: RunKey, body: Start) -> None:
        if body.slot not in {spec.id for spec in self.specs}:
            raise AssertionError(f"{key} starts on slot {body.slot}, which {self.node} does not have any more")
        process = self.channels[key] = Process(self, key, body)
        busy = self.on_slot.get(body.slot)
        if busy is not None:
            raise AssertionError(f"{key} starts on slot {body.slot}, which runs {busy.key}")
        self.on_slot[body.slot] = process
        self.carry_out(key, 1)
        self.world.note(self.node, "starts", key, "on", body.slot)
        self.world.later(self.world.rng.uniform(0.05, 0.8), process.begin)
        self.send_ack(key, 1)

    def carry_out(self, key: RunKey, sequence: int) -> None:
        """Record that a command is executed; fail if any incarnation executed it before."""
        if (key, sequence) in self.carried_out:
            raise AssertionError(f"command {sequence} of {key} is carried out again")
        self.carried_out.add((key, sequence))

    def acknowledged(self, session: int, key: RunKey, sequence: int) -> None:
        """Take the scheduler's acknowledgement of messages of a run."""
        process = self.channels.get(key)
        if session == self.session and process is not None:
            process.acknowledge(sequence)

    def make_room(self) -> None:
        """Evict copies that the store has for all experiments that need them, except those of unacknowledged snapshots."""
        if not self.alive:
            return
        busy = {sha256 for process in self.channels.values() for sha256 in process.shipping}
        gone = [s for s in self.disk if self._stored(s) and s not in busy and not self._reported(s)]
        for sha256 in gone:
            self.lose(sha256)
        self.evicted.update(gone)
        if gone and self.welcomed:
            assert self.scheduler is not None
            self.world.fault("copies evicted", self.node)
            self._post(self.scheduler.evicted, self, self.session, tuple(gone))

    def keep(self, blob: Blob, experiment: str) -> None:
        """Put a snapshot that a run took or fetched on the disk."""
        self.disk[blob.sha256] = blob
        self.needed_by.setdefault(blob.sha256, set()).add(experiment)

    def lose(self, sha256: str) -> None:
        """Remove a copy from the disk."""
        self.disk.pop(sha256, None)
        self.needed_by.pop(sha256, None)

    def _stored(self, sha256: str) -> bool:
        return sha256 in self.store and self.needed_by.get(sha256, set()) <= self.store.owners[sha256]

    def _reported(self, sha256: str) -> bool:
        return any(process.reported(sha256) for process in self.channels.values())

    def delete(self, session: int, sha256: str) -> None:
        """Delete a snapshot by order of the scheduler, unless its report is not acknowledged yet."""
        if session == self.session and not self._reported(sha256):
            self.lose(sha256)

    def ship(self, session: int, order: ShipmentOrder) -> None:
        """Take an order to upload a snapshot that no process here will upload by itself."""
        if session != self.session or not self.alive:
            return
        name = (order.stream, order.number)
        if name in self.orders:
            self._send_shipped(self.orders[name])
        else:
            self.orders[name] = None
            self.world.later(self.world.rng.uniform(0.1, 1.5), self._ship, self.life, order)

    def _ship(self, life: int, order: ShipmentOrder) -> None:
        if life != self.life or not self.alive:
            return
        blob = self.disk.get(order.sha256)
        stored = order.stream in self.store.owners.get(order.sha256, ())
        error = "" if blob is not None or stored else "it is not on this node any more"
        if blob is not None and self.world.happens(self.rates.not_stored):
            self.world.fault("snapshot not stored", order.sha256)
            error = "the store is full"
        elif blob is not None:
            self.store.put(blob, order.stream)
            self.world.note(self.node, "stores", order.sha256, "by order", order.number)
        answer = SnapshotShipped(
            0.0, order.stream, self.node, order.number, order.job, order.position, order.sha256, error
        )
        self.orders[order.stream, order.number] = answer
        self._send_shipped(answer)

    def _send_shipped(self, answer: SnapshotShipped | None) -> None:
        if answer is not None and self.welcomed:
            assert self.scheduler is not None
            unreliable(self, self._post, self.scheduler.shipped, self, answer)

    def shipment_acknowledged(self, session: int, experiment: str, number: int) -> None:
        """Take the scheduler's acknowledgement of the answer to an order."""
        if session == self.session:
            self.orders.pop((experiment, number), None)

    # ---------------------------------------------------------------------------------------------------------- slot

    def fetch(self, sha256: str, peers: tuple[str, ...], experiment: str) -> Blob | None:
        """Fetch a snapshot for a run of an experiment from the disk, a peer or the store; return None if none has it."""
        blob = self.disk.get(sha256)
        for peer in peers:
            other = self.agents[peer]
            if blob is None and other.alive and not other.partitioned and not self.partitioned:
                blob = other.disk.get(sha256)
        blob = blob or self.store.get(sha256)
        if blob is not None:
            self.keep(blob, experiment)
        return blob

    def left(self, process: Process) -> None:
        """Free the slot of a process."""
        if self.on_slot.get(process.start.slot) is process:
            del self.on_slot[process.start.slot]

    def forget(self, key: RunKey) -> None:
        """Close the channel of a run."""
        self.channels.pop(key, None)
        self.forgotten.add(key)

    def _orphans(self, process: Process) -> None:
        """Register uploaded snapshots of a lost channel as orphans if the scheduler has deleted them already."""
        for body in process.unacknowledged.values():
            if isinstance(body, SnapshotStored) and not self._known(process.key.stream, body.sha256):
                self.world.orphans.add(body.sha256)

    def _known(self, experiment: str, sha256: str) -> bool:
        assert self.scheduler is not None
        return self.scheduler.knows(experiment, sha256)

    def die(self, disk_lost: bool) -> None:
        """Kill the agent and its processes, with `disk_lost` also its disk."""
        for process in self.channels.values():
            process.kill()
            self._orphans(process)
        for answer in self.orders.values():
            if answer is not None and not answer.error and not self._known(answer.stream, answer.sha256):
                self.world.orphans.add(answer.sha256)
        self.orders.clear()
        self.channels.clear()
        self.on_slot.clear()
        if disk_lost:
            self.disk.clear()
            self.needed_by.clear()
        self.drop()
        self.alive = False

    def rise(self) -> None:
        """Start the agent in a new incarnation."""
        self.life += 1
        self.alive = True
        self.connect()


def unreliable(agent: Agent, post: Callable[..., None], action: Callable[..., None], *arguments: object) -> None:
    """Send over a network that loses, repeats, reorders and delays messages.

    Unless the message arrives in order, the session breaks soon.
    """
    world, rates = agent.world, agent.rates
    if world.happens(rates.lost):
        world.fault("message lost", arguments[-1])
    elif world.happens(rates.late):
        world.fault("message late beyond the lease", arguments[-1])
        world.later(LEASE * world.rng.uniform(1.1, 2.0), action, *arguments)
    elif world.happens(rates.reordered):
        world.fault("message reordered", arguments[-1])
        world.later(world.rng.uniform(0.1, 1.0), action, *arguments)
    else:
        if world.happens(rates.duplicated):
            world.fault("message duplicated", arguments[-1])
            world.later(world.rng.uniform(0.05, 1.0), action, *arguments)
        post(action, *arguments)
        return
    session = agent.session
    world.later(world.rng.uniform(0.5, 3.0), lambda: agent.drop() if agent.session == session else None)
