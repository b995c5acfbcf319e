"""A simulated training process and its channel: the behaviour of a runner between its commands and its reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopyard.policy.vocabulary import DecisionKind, Report, RunEndReason, RunKey, RunMode
from hopyard_engine.core.effects import Amend, CommandBody, Decide, Kill, Start
from hopyard_engine.core.events import Amended, Ended, Reports, RunBody, SnapshotStored, SnapshotTaken, Started
from hopyard_engine.core.types import SnapshotInfo
from tests.reasons import said
from tests.simulation import training
from tests.simulation.training import Blob

if TYPE_CHECKING:
    from tests.simulation.agent import Agent


class Process:
    """One process of a run and its channel.

    The process is `alive` while it has its slot; the channel lasts until all messages are acknowledged.
    """

    def __init__(self, agent: Agent, key: RunKey, start: Start) -> None:
        self.agent = agent
        self.key = key
        self.start = start
        self.alive = True
        self.sent = 0
        self.acknowledged = 0
        self.unacknowledged: dict[int, RunBody] = {}
        self.received = 1
        self.shipping: dict[str, int] = {}
        self.over = False
        # The state of the runner.
        self.loaded = False
        self.waiting = False
        self.parked = False
        self.position = 0
        self.state = 0
        self.until = start.until
        self.completes = start.completes
        self.allowed = start.allowed
        self.saves = set(start.snapshot_at)
        self.last_save = 0
        self.saved_at: int | None = None
        self.ending: DecisionKind | None = None
        self.parked_by_decision = False
        self.rates = training.Rates(start.hyperparameters)
        self.together = (
            len(start.rank_nodes) if start.place is not None else 1
        )  # Units of an iteration: one for each partition.
        self.unsaved: list[int] = []  # States since it last loaded or saved one.

    # ---------------------------------------------------------------------------------------------------------- channel

    def say(self, body: RunBody) -> None:
        """Number a message, store it until it is acknowledged, and send it."""
        self.sent += 1
        self.unacknowledged[self.sent] = body
        self.agent.send_message(self.key, self.sent, body)

    def acknowledge(self, sequence: int) -> None:
        """Take an acknowledgement of all messages up to a number; start the upload of the snapshots in them."""
        for number in [n for n in self.unacknowledged if n <= sequence]:
            body = self.unacknowledged.pop(number)
            taken = body.snapshot if isinstance(body, SnapshotTaken | Ended) else None
            if taken is not None and taken.sha256 not in self.shipping and not self.start.ships_by_order:
                self.shipping[taken.sha256] = taken.position
                self.agent.world.later(self.agent.world.rng.uniform(0.1, 1.5), self._shipped, taken)
        self._maybe_forget()

    def _shipped(self, taken: SnapshotInfo) -> None:
        if self.agent.channels.get(self.key) is not self:
            return
        del self.shipping[taken.sha256]
        blob = self.agent.disk.get(taken.sha256)
        if blob is not None and self.agent.world.happens(self.agent.rates.not_stored):
            self.agent.world.fault("snapshot not stored", taken.sha256)
            self.say(SnapshotStored(taken.position, taken.sha256, "the store is full"))
        elif blob is not None:  # Otherwise it is not needed any more.
            self.agent.store.put(blob, self.key.stream)
            self.agent.world.note(self.agent.node, "stores", taken.sha256, "for", self.key)
            self.say(SnapshotStored(taken.position, taken.sha256))
        self._maybe_forget()

    def _maybe_forget(self) -> None:
        if self.over and not self.unacknowledged and not self.shipping:
            self.agent.forget(self.key)

    def reported(self, sha256: str) -> bool:
        """Return whether an unacknowledged message contains a snapshot."""
        bodies = self.unacknowledged.values()
        return any(
            body.snapshot is not None and body.snapshot.sha256 == sha256
            for body in bodies
            if isinstance(body, SnapshotTaken | Ended)
        )

    # ----------------------------------------------------------------------------------------------------------- running

    def begin(self) -> None:
        """Load the state and start training."""
        if not self.alive:
            return
        world = self.agent.world
        blob: Blob | None = None
        if self.start.snapshot is not None:
            blob = self.agent.fetch(self.start.snapshot.sha256, self.start.snapshot_nodes, self.key.stream)
            if blob is None:
                self.finish(Ended(RunEndReason.LOST, 0, cause=said("no copy of the snapshot can be had")))
                return
        self.loaded = True
        self.position = self.last_save = blob.position if blob is not None else 0
        self.state = blob.state if blob is not None else training.initial(self.rates.before(1))
        self.say(Started(self.position))
        if self.key.rank != 0:
            self._follow()
            return
        if self.start.mode is not RunMode.TRAIN:
            world.later(world.rng.uniform(0.1, 0.6), self._evaluated)
        else:
            self._go()

    def _evaluated(self) -> None:
        if not self.alive:
            return
        values, examples = training.evaluation(self.state, self.start.input)
        if self.start.mode is RunMode.PROFILE:
            values = {"seconds": 1.0 + self.rates.before(1) % 5}
            if self.together > 1:
                values["partitions"] = float(self.together)
        self.parked = True
        self.say(Reports((Report(self.position, values, 0.1, self.start.input, examples, at_until=True),)))
        if self.ending is not None:
            self._leave()

    def _follow(self) -> None:
        """Let a rank other than 0 run, fail or crash while rank 0 leads."""
        if not self.alive:
            return
        agent, world = self.agent, self.agent.world
        if world.happens(agent.rates.user_failure):
            world.fault("user-code failure", self.key)
            self.finish(Ended(RunEndReason.FAILED, self.position, user_code=True, cause=said("ValueError: simulated")))
        elif world.happens(agent.rates.crash):
            world.fault("runner crash", self.key)
            self.finish(Ended(RunEndReason.LOST, self.position, cause=said("killed by signal 9")))
        else:
            world.later(world.rng.uniform(0.2, 1.0), self._follow)

    def _tell_gang(self, ended: Ended) -> None:
        """Inform the other ranks of a gang that this rank is gone, or, as rank 0, that the run ends."""
        world = self.agent.world
        broken = ended.reason in (RunEndReason.LOST, RunEndReason.FAILED)
        if self.key.rank and not broken:
            return
        theirs = Ended(RunEndReason.LOST, 0, cause=said(f"rank {self.key.rank} is gone")) if broken else ended
        for index, node in enumerate(self.start.rank_nodes):
            other = self.agent.agents[node].channels.get(self.key._replace(rank=index))
            if other is not None and other is not self:
                world.later(world.rng.uniform(0.01, 1.0), other.hear, theirs)

    def hear(self, ended: Ended) -> None:
        """End because another rank is gone, or because rank 0 ends the run."""
        if self.alive and self.loaded:
            self.finish(Ended(ended.reason, self.position, cause=ended.cause))

    def _go(self) -> None:
        self.waiting = self.parked = self.parked_by_decision = False
        self.agent.world.later(self.agent.world.rng.uniform(0.2, 1.0), self._iterated)

    def _iterated(self) -> None:
        if not self.alive:
            return
        agent, world = self.agent, self.agent.world
        if world.happens(agent.rates.user_failure):
            world.fault("user-code failure", self.key)
            self.finish(Ended(RunEndReason.FAILED, self.position, user_code=True, cause=said("ValueError: simulated")))
            return
        if world.happens(agent.rates.crash):
            world.fault("runner crash", self.key)
            self._lose()
            self.finish(Ended(RunEndReason.LOST, self.position, cause=said("killed by signal 9")))
            return
        for _ in range(self.together):
            self.position += 1
            self.state = training.train(self.state, self.rates.before(self.position), self.position)
            self.unsaved.append(self.state)
            world.trained[self.key.stream, self.key.job, self.state] += 1
        self.saved_at = None
        self.parked = self.position >= self.until
        self.say(Reports((Report(self.position, training.metrics(self.state), 0.5, at_until=self.parked),)))
        every = self.start.snapshot_every
        if self.position in self.saves or (every and self.position - self.last_save >= every):
            self.saves.discard(self.position)
            self.say(SnapshotTaken(self._save()))
        if self.ending is not None:
            self._leave()
        elif self.parked and self.completes:
            self.finish(Ended(RunEndReason.UNTIL, self.position, self._save()))
        elif self.parked or self.position >= self.allowed:
            self.waiting = True
        else:
            self._go()

    def _save(self) -> SnapshotInfo:
        blob = Blob(self.position, self.state)
        self.agent.keep(blob, self.key.stream)
        self.last_save = self.saved_at = self.position
        self.unsaved.clear()
        return SnapshotInfo(self.position, blob.sha256, 100)

    def _leave(self) -> None:
        if self.ending is DecisionKind.TERMINATE:
            self.finish(Ended(RunEndReason.TERMINATED, self.position))
        else:
            training_run = self.start.mode is RunMode.TRAIN
            self.finish(Ended(RunEndReason.SUSPENDED, self.position, self._save() if training_run else None))

    def _lose(self) -> None:
        """Record the unsaved states as lost."""
        self.agent.world.lost.update((self.key.stream, self.key.job, state) for state in self.unsaved)
        self.unsaved.clear()

    def kill(self) -> None:
        """Kill the process without a message."""
        if self.alive:
            self._lose()
        self.alive = False

    def finish(self, ended: Ended) -> None:
        """End the process: free its slot and send its last message."""
        self.alive = False
        self.over = True
        self.agent.left(self)
        self.say(ended)
        self._tell_gang(ended)

    # --------------------------------------------------------------------------------------------------------- commands

    def take(self, sequence: int, body: CommandBody) -> None:
        """Take a command; ignore repeated ones and those after a gap."""
        if sequence == self.received + 1:
            self.received = sequence
            if self.alive:
                self.agent.carry_out(self.key, sequence)
                self._obey(body)
        self.agent.send_ack(self.key, self.received)

    def _obey(self, body: CommandBody) -> None:
        match body:
            case Kill():
                self.finish(Ended(RunEndReason.TERMINATED, self.position, cause=said(str(body.reason))))
            case Amend():
                self._amend(body)
            case Decide():
                self._decide(body)
            case Start():
                raise AssertionError("a second start in one channel")

    def _amend(self, body: Amend) -> None:
        here = self.waiting or self.parked
        late = body.until is not None and body.until < self.position + (0 if self.parked else 1)
        late = late or any(p < self.position + (0 if here else 1) for p in body.snapshot_at)
        if late or not self.loaded:
            late = late or any(p <= self.start_position for p in (*body.snapshot_at, body.until or 1 << 30))
        if late:
            self.say(Amended(body.ticket, False, self.position))
            return
        self.saves.update(body.snapshot_at)
        if body.until is not None:
            self.until, self.completes = body.until, False
        self.say(Amended(body.ticket, True, self.position))
        if here and self.position in self.saves:
            self.saves.discard(self.position)
            self.say(SnapshotTaken(self._save()))
        if self.parked and self.parked_by_decision and self.until > self.position:
            self._go()

    @property
    def start_position(self) -> int:
        """The position at which it starts or started."""
        return self.start.snapshot.position if self.start.snapshot is not None else 0

    def _decide(self, body: Decide) -> None:
        if body.allowed:
            self.allowed = max(self.allowed, body.allowed)
        if body.kind in (DecisionKind.SUSPEND, DecisionKind.TERMINATE):
            self.ending = body.kind
            if self.waiting or self.parked:
                self._leave()
        elif body.kind is DecisionKind.PARK:
            self.parked_by_decision = self.parked
        elif self.parked:
            if body.position >= self.position:
                self._released()
        elif self.waiting and (body.position >= self.position or self.position < self.allowed):
            self._go()

    def _released(self) -> None:
        if self.start.mode is not RunMode.TRAIN:
            self.finish(Ended(RunEndReason.UNTIL, self.position))
        elif self.until > self.position:
            self._go()
        else:
            self.finish(Ended(RunEndReason.UNTIL, self.position, self._save()))
