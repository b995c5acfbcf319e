"""A simulated node agent: slots, a disk, channels, one session with the scheduler.

Cut off from the scheduler it trains on, for as long as it takes; when it is back it is told which runs it has lost meanwhile.
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
    """One node. Its session is a number; messages of an older session never reach it."""

    def __init__(
        self, world: World, rates: Rates, node: str, slots: int, store: Store, agents: dict[str, Agent]
    ) -> None:
        self.world = world
        self.rates = rates
        self.node = node
        self.slots = tuple(SlotSpec(f"{node}/{n}") for n in range(slots))
        self.specs = self.slots  # Those that it announces in this life.
        self.store = store
        self.agents = agents
        self.scheduler: Scheduler | None = None
        self.alive = True
        self.partitioned = False
        self.life = 1
        self.disk: dict[str, Blob] = {}
        self.evicted: set[str] = set()  # Deleted to make room; the scheduler may have yet to hear of it.
        self.needed_by: dict[str, set[str]] = {}  # Experiments whose runs took or got a copy that is here.
        self.channels: dict[RunKey, Process] = {}
        self.on_slot: dict[str, Process] = {}
        self.session: int | None = None
        self.welcomed = False
        self.incarnation_known = 0
        self.forgotten: set[RunKey] = set()
        self.carried_out: set[tuple[RunKey, int]] = set()  # In all its lives.
        self.orders: dict[
            tuple[str, int], SnapshotShipped | None
        ] = {}  # None: under way; else the answer, not acknowledged.
        self._sessions = 0
        self._out = 0.0
        self.inbound = 0.0

    # --------------------------------------------------------------------------------------------------------- session

    def connect(self) -> None:
        """Opens a session, or tries again later."""
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
        """The session breaks; both sides notice."""
        if self.session is None:
            return
        self.world.note("session of", self.node, "drops")
        self.session, self.welcomed = None, False
        assert self.scheduler is not None
        self.scheduler.session_dropped(self.node)
        self.world.later(self.world.rng.uniform(0.2, 1.0), self.connect)

    def welcome(self, session: int, unknown: tuple[RunKey, ...]) -> None:
        """The scheduler's answer to the hello: what it does not want any more ends now; the rest is said again."""
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
        """In order with everything else of the session."""
        self._out = max(self._out + 1e-6, self.world.now + self.world.rng.uniform(0.01, 0.05))
        self.world.later(self._out - self.world.now, action, *arguments)

    def send_message(self, key: RunKey, sequence: int, body: RunBody) -> None:
        """Sends a run's message, if there is a session, over a network that has faults."""
        if not self.welcomed:
            return
        assert self.scheduler is not None
        event = RunMessage(0.0, *key, sequence, body)
        unreliable(self, self._post, self.scheduler.message, self, event)

    def send_ack(self, key: RunKey, sequence: int) -> None:
        """Acknowledges a run's commands."""
        if self.welcomed:
            assert self.scheduler is not None
            unreliable(self, self._post, self.scheduler.acknowledged, key, sequence)

    def command(self, session: int, key: RunKey, sequence: int, body: CommandBody) -> None:
        """A command arrives."""
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
        """A command is carried out: once, by whichever agent and in whichever of its lives."""
        if (key, sequence) in self.carried_out:
            raise AssertionError(f"command {sequence} of {key} is carried out again")
        self.carried_out.add((key, sequence))

    def acknowledged(self, session: int, key: RunKey, sequence: int) -> None:
        """The scheduler has taken a run's messages over."""
        process = self.channels.get(key)
        if session == self.session and process is not None:
            process.acknowledge(sequence)

    def make_room(self) -> None:
        """Deletes copies of what the store has for all that need them here, but for what is not told of yet."""
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
        """A run of an experiment took or got a snapshot."""
        self.disk[blob.sha256] = blob
        self.needed_by.setdefault(blob.sha256, set()).add(experiment)

    def lose(self, sha256: str) -> None:
        """A copy is gone."""
        self.disk.pop(sha256, None)
        self.needed_by.pop(sha256, None)

    def _stored(self, sha256: str) -> bool:
        return sha256 in self.store and self.needed_by.get(sha256, set()) <= self.store.owners[sha256]

    def _reported(self, sha256: str) -> bool:
        return any(process.reported(sha256) for process in self.channels.values())

    def delete(self, session: int, sha256: str) -> None:
        """Nobody needs a snapshot any more, unless the scheduler has yet to hear that it was taken."""
        if session == self.session and not self._reported(sha256):
            self.lose(sha256)

    def ship(self, session: int, order: ShipmentOrder) -> None:
        """The scheduler wants a snapshot in the store that no process here knows of any more."""
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
        """The scheduler has taken an answer over."""
        if session == self.session:
            self.orders.pop((experiment, number), None)

    # ---------------------------------------------------------------------------------------------------------- slot

    def fetch(self, sha256: str, peers: tuple[str, ...], experiment: str) -> Blob | None:
        """Gets a snapshot onto the disk for a run of an experiment: from the disk, a peer or the store."""
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
        """A process is off its slot."""
        if self.on_slot.get(process.start.slot) is process:
            del self.on_slot[process.start.slot]

    def forget(self, key: RunKey) -> None:
        """Nothing is left to say on a channel."""
        self.channels.pop(key, None)
        self.forgotten.add(key)

    def _orphans(self, process: Process) -> None:
        """What a channel stored and cannot say any more is garbage if the scheduler has dropped the snapshot already."""
        for body in process.unacknowledged.values():
            if isinstance(body, SnapshotStored) and not self._known(process.key.stream, body.sha256):
                self.world.orphans.add(body.sha256)

    def _known(self, experiment: str, sha256: str) -> bool:
        assert self.scheduler is not None
        return self.scheduler.knows(experiment, sha256)

    def die(self, disk_lost: bool) -> None:
        """The agent and its processes are gone, perhaps with the disk."""
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
        """The agent is back, in a new life."""
        self.life += 1
        self.alive = True
        self.connect()


def unreliable(agent: Agent, post: Callable[..., None], action: Callable[..., None], *arguments: object) -> None:
    """Sends over a network that loses, repeats, reorders and delays; the session does not survive a gap for long."""
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
