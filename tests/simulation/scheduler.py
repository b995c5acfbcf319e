"""The simulated shell of the real core and policy host: it writes the journal first, then executes the effects."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from hopyard.policy import Policy
from hopyard.policy.vocabulary import ExperimentState, RunKey, StreamId
from hopyard.predictor import LEVELS, Curve, Prediction
from hopyard.predictor.wire import prediction_to_wire
from hopyard_engine.core import CLUSTER_STREAM, Core
from hopyard_engine.core.effects import (
    Acknowledge,
    AcknowledgeShipment,
    AskOutside,
    Effect,
    ForgetSnapshot,
    NodeReleased,
    OrdersGiven,
    Record,
    Send,
    SetTimer,
    UpCall,
    Welcome,
)
from hopyard_engine.core.events import (
    Answered,
    ClusterEvent,
    Event,
    ExperimentJoined,
    NodeEvicted,
    NodeExpired,
    NodeJoined,
    Operated,
    PolicyAnswered,
    PolicyFailed,
    RunMessage,
    SnapshotShipped,
    StreamEvent,
    TimerElapsed,
)
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.policy_host import PolicyHost
from hopyard_policies.mop.milp_plans import KIND
from hopyard_policies.mop.schedule.planning import longest
from hopyard_policies.mop.schedule.problem import from_plain
from tests.reasons import failure
from tests.simulation import dump, legal, training
from tests.simulation.agent import unreliable
from tests.simulation.faults import LEASE, Rates
from tests.simulation.training import Store
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.agent import Agent


LIVELOCK = 500


class Watcher(Protocol):
    """The interface of the checks that follow every step of the core."""

    def handled(self, core: Core, event: Event, effects: list[Effect]) -> None:
        """Check an event that the core handled."""

    def journalled(self, core: Core, effects: list[Effect]) -> None:
        """Check a batch of effects that was written to the journal."""

    def reread(self, stream: Stream) -> None:
        """Replace the state of a finished experiment by that of its journal, after a crash lost its last events."""


class BrokenPolicyError(AssertionError):
    """Raised if a policy fails, or answers the same up-calls in different ways."""


def _predicted(question: dict[str, Any]) -> Prediction:
    """Predict that the curve stays at its mean, at the horizon only."""
    curve = Curve(tuple(question["curve"]["positions"]), tuple(question["curve"]["values"]))
    expected = sum(curve.values) / len(curve.values) if curve.values else 0.0
    if curve.positions and curve.positions[-1] >= question["horizon"]:
        return Prediction((), (), ())
    return Prediction((question["horizon"],), (expected,), (0.1,), (), (expected,) * len(LEVELS))


_PAUSED = (ExperimentState.PAUSED, ExperimentState.PAUSING)


class Scheduler:
    """The core with its journal and its simulated surroundings; `core` is None while it is down."""

    def __init__(
        self,
        world: World,
        rates: Rates,
        agents: dict[str, Agent],
        store: Store,
        new_policy: Callable[[], Policy],
        watcher: Watcher,
        propose: Callable[[int], dict[str, Any]] = training.proposed,
    ) -> None:
        self.world = world
        self.rates = rates
        self.agents = agents
        self.store = store
        self.new_policy = new_policy
        self.watcher = watcher
        self.propose = propose
        self.core: Core | None = Core()
        self.hosts: dict[str, PolicyHost] = {}
        self.given_up: set[str] = set()  # Policies that took too long, to be rebuilt from the journal.
        self.inboxes: dict[str, deque[tuple[StreamEvent, Agent | None]]] = {}
        self.journal: dict[str, list[Event]] = {}
        self.sessions: dict[str, int] = {}
        self.silences: dict[str, int] = {}
        self.finished: set[str] = set()  # Finished streams, by the journal's projection.
        self.over: set[str] = set()  # Finished experiments.
        self.events = 0
        self.crash: str | None = None  # "journalled" or "lost": what happens to the next batch.
        self.life = 1
        self.configurations = 0
        self._failed = set[tuple[StreamId, str]]()
        self._broken = dict[tuple[StreamId, str], str]()

    # ----------------------------------------------------------------------------------------------------------- events

    def handle(self, event: Event, sender: Agent | None = None) -> None:
        """Handle an external event: core, policies, journal, effects."""
        core = self.core
        if core is None:
            return
        self.events += 1
        if not isinstance(event, ClusterEvent) and core.awaits_answer(event.stream):
            self.inboxes.setdefault(event.stream, deque()).append((event, sender))
            return
        self._run(core, deque([event]), [], sender)

    def reopened(self, stream: str, experiment: str) -> None:
        """Mark a finished experiment as open again, so that its journal is read at a recovery."""
        self.finished.discard(stream)
        self.over.discard(experiment)

    def _run(self, core: Core, events: deque[Event], calls: list[UpCall], sender: Agent | None) -> None:
        batch: list[Effect] = []
        pending = deque(calls)
        taken = 0
        while events or pending:
            if not events:
                self._make(core, pending.popleft(), events)
                continue
            event = events.popleft()
            taken += 1
            assert taken < LIVELOCK, f"one event led to {taken} more without any time passing"
            self.world.note("event:", event)
            effects = core.handle(event)
            batch += effects
            pending.extend(effect for effect in effects if isinstance(effect, UpCall))
            self.watcher.handled(core, event, effects)
        if self.crash == "lost":
            self._go_down("before its last events were journalled")
            self._reread_finished({effect.stream for effect in batch if isinstance(effect, Record)})
            return
        for effect in batch:
            if isinstance(effect, Record):
                self.journal.setdefault(effect.stream, []).append(effect.event)
        self.finished.update(name for name, stream in core.streams.items() if stream.state.ended)
        self.over.update(m.id for stream in core.streams.values() for m in stream.experiments.values() if m.state.ended)
        self.watcher.journalled(core, batch)
        if self.crash == "journalled":
            # Finished experiments are not loaded again, so deletions of their last batch are never executed in the store.
            forgotten = [e for e in batch if isinstance(e, ForgetSnapshot) and e.stream in self.finished]
            self.world.orphans.update(e.sha256 for e in forgotten)
            self._go_down("before its last effects were carried out")
            return
        for effect in batch:
            self._carry_out(core, effect, sender)

    def _make(self, core: Core, call: UpCall, events: deque[Event]) -> None:
        stream = core.streams[call.stream]
        if not stream.conversation.is_answered_by(call.number):
            return
        if call.stream in self.given_up or self.world.happens(self.rates.thinking):
            self.world.fault("policy thinks", call.stream)
            core.begin_up_call(call.stream)
            rng = self.world.rng
            delay = rng.choice([rng.uniform(0.01, 1.0), rng.uniform(1.0, LEASE * 1.5)])
            self.world.later(delay, self._thought, self.life, call, dump.picture(stream))
            return
        answer = self._host(call.stream).answer(stream, call)
        self.world.note("up-call", call.number, call.call, "->", answer)
        if isinstance(answer, PolicyFailed):
            raise BrokenPolicyError(str(answer.reason))
        events.append(answer)
        if self.world.happens(self.rates.repeated_answer / 4):
            self.world.fault("policy's answer repeated")
            events.append(answer)

    def _thought(self, life: int, call: UpCall, seen: object) -> None:
        """Check that the experiment did not change while its policy computed, and deliver the answer or give the policy up."""
        core, name = self.core, call.stream
        if core is None or life != self.life:
            return
        stream = core.streams[name]
        changed = dump.difference(seen, dump.picture(stream))
        assert changed is None, f"{name} changed while its policy thought: {changed}"
        answer: PolicyAnswered | PolicyFailed
        if self.world.happens(self.rates.too_long):
            self.world.fault("policy takes too long", name)
            self.hosts.pop(name, None)
            self.given_up.add(name)
            answer = PolicyFailed(self.world.now, name, call.number, failure("it took too long"), unheard=True)
            self.world.later(self.world.rng.uniform(0.5, 10.0), self._resume, name)
        else:
            if name in self.given_up:
                self._make_again(name, call)
            answer = self._host(name).answer(stream, call)
            if isinstance(answer, PolicyFailed):
                raise BrokenPolicyError(str(answer.reason))
            answer = replace(answer, at=self.world.now)
        self.world.note("up-call", call.number, call.call, "-> later", answer)
        self._run(core, deque([answer]), [], None)
        inbox = self.inboxes.get(name)
        while inbox and self.core is core and not core.awaits_answer(name):
            event, sender = inbox.popleft()
            self._run(core, deque([replace(event, at=self.world.now)]), [], sender)

    def _make_again(self, name: str, call: UpCall) -> None:
        """Rebuild the state of a policy that was given up, from the journal."""
        self.given_up.discard(name)
        pending = self._refeed(Core(), name, self.journal[name])
        assert pending == call, f"{name}: the journal leads to {pending}, made was {call}"

    def _resume(self, name: str) -> None:
        """Let a person resume experiments that were paused because their policy took too long or their generator failed."""
        stream = self.core.streams.get(StreamId(name)) if self.core is not None else None
        if self.core is not None and (stream is None or stream.state.ended):
            return
        for experiment in list(stream.experiments.values()) if stream is not None else []:
            if experiment.state in _PAUSED and self.core is not None:
                self.handle(Operated(self.world.now, StreamId(name), "resume", experiment.id))
        stream = self.core.streams.get(StreamId(name)) if self.core is not None else None
        paused = stream is None or any(experiment.state in _PAUSED for experiment in stream.experiments.values())
        if paused or (self.core is not None and self.core.awaits_answer(StreamId(name))):
            self.world.later(1.0, self._resume, name)

    def _host(self, experiment: str) -> PolicyHost:
        if experiment not in self.hosts:
            self.hosts[experiment] = PolicyHost(self.new_policy())
        return self.hosts[experiment]

    # ---------------------------------------------------------------------------------------------------------- effects

    def _carry_out(self, core: Core, effect: Effect, sender: Agent | None) -> None:
        match effect:
            case Send():
                self._send(effect)
            case Acknowledge():
                if sender is not None and self.sessions.get(sender.node) is not None:
                    session = self.sessions[sender.node]
                    unreliable(sender, self._post, sender.acknowledged, session, effect.run, effect.sequence)
            case AcknowledgeShipment():
                self._acknowledge_shipment(effect)
            case Welcome():
                self._welcome(core, effect)
            case OrdersGiven():
                self._order(core, effect.node)
            case NodeReleased():
                legal.released(core, effect.node)
                self.world.fault("node released", effect.node)
                self.agents[effect.node].released_in = self.agents[effect.node].life
            case ForgetSnapshot():
                self._forget(effect)
            case AskOutside():
                self._ask(effect)
            case SetTimer():
                if effect.at is not None:
                    self._set_timer(effect)
            case _:
                pass

    def _post(self, action: Callable[..., None], *arguments: object) -> None:
        agent: Agent = action.__self__  # type: ignore[attr-defined]
        agent.inbound = max(agent.inbound + 1e-6, self.world.now + self.world.rng.uniform(0.01, 0.05))
        self.world.later(agent.inbound - self.world.now, action, *arguments)

    def _send(self, send: Send) -> None:
        agent = self.agents[send.node]
        session = self.sessions.get(send.node)
        if session is not None:
            unreliable(agent, self._post, agent.command, session, send.run, send.sequence, send.body)

    def _welcome(self, core: Core, welcome: Welcome) -> None:
        agent = self.agents[welcome.node]
        session = self.sessions.get(welcome.node)
        if session is None:
            return
        self._post(agent.welcome, session, welcome.unknown)
        for send in core.unacknowledged(welcome.node):
            self._send(send)
        self._order(core, welcome.node)

    def _order(self, core: Core, node: str) -> None:
        session, agent = self.sessions.get(node), self.agents[node]
        for order in core.orders(node) if session is not None else ():
            unreliable(agent, self._post, agent.ship, session, order)

    def _acknowledge_shipment(self, ack: AcknowledgeShipment) -> None:
        session = self.sessions.get(ack.node)
        if session is not None:
            agent = self.agents[ack.node]
            unreliable(agent, self._post, agent.shipment_acknowledged, session, ack.stream, ack.order)

    def _forget(self, effect: ForgetSnapshot) -> None:
        self.world.note("forget", effect)
        if effect.stored:
            self.store.drop(effect.sha256, effect.stream)
        for node in effect.nodes:
            session = self.sessions.get(node)
            if session is not None:
                self._post(self.agents[node].delete, session, effect.sha256)

    def _ask(self, ask: AskOutside) -> None:
        rng = self.world.rng
        delay = rng.uniform(0.1, 1.0)
        if self.world.happens(self.rates.slow_answer):
            self.world.fault("slow answer", ask.kind)
            delay = rng.uniform(3.0, 30.0)
        result: Any = None
        error = ""
        if ask.kind == "create_job" and self._waits(ask):
            return
        if ask.kind == "create_job" and self._generator_fails(ask):
            self._broken[ask.stream, ask.experiment] = ask.ticket
            self.world.fault("generator failed", ask.ticket)
            self.world.later(delay, self._answered, self.life, Answered(0.0, ask.stream, ask.ticket, None, "no ideas"))
            self.world.later(delay + rng.uniform(0.5, 10.0), self._resume, ask.stream)
            return
        if ask.kind == "create_job":
            seed = training.mix(int(ask.payload["job"]), 77)  # Two experiments have the same training and share bytes.
            result = self.propose(seed)
        elif self.world.happens(self.rates.failed_answer):
            self.world.fault("failed answer", ask.kind)
            error = "the predictor failed"
        elif ask.kind == KIND:
            plan = longest(from_plain(ask.payload), self.world.rng)
            result = {"placed": [[*placed.unit, placed.slot] for placed in plan.placed]}
        else:
            result = prediction_to_wire(_predicted(ask.payload["question"]))
        answered = Answered(0.0, ask.stream, ask.ticket, result, error)
        self.world.later(delay, self._answered, self.life, answered)
        if self.world.happens(self.rates.repeated_answer):
            self.world.fault("answer repeated", ask.kind)
            self.world.later(delay + rng.uniform(0.0, 5.0), self._answered, 0, answered)

    def _waits(self, ask: AskOutside) -> bool:
        """Return whether a question to a generator is dropped, because the core repeats it with an earlier one that has failed."""
        key = ask.stream, ask.experiment
        failed = self._broken.get(key)
        stream = self.core.streams.get(ask.stream) if self.core is not None else None
        if failed is not None and failed != ask.ticket and stream is not None and failed in stream.asks:
            return True
        self._broken.pop(key, None)
        return False

    def _generator_fails(self, ask: AskOutside) -> bool:
        """Return whether a generator fails at its question: for some jobs, at the first question only."""
        key = ask.stream, ask.ticket
        if not self.rates.failed_answer or key in self._failed or training.mix(int(ask.payload["job"]), 91) % 20:
            return False
        self._failed.add(key)
        return True

    def _answered(self, life: int, answered: Answered) -> None:
        # Answers to an earlier incarnation do not reach this one, except as a repeated answer.
        if life in (0, self.life) and self._has(answered.stream):
            self.handle(replace(answered, at=self.world.now))

    def _set_timer(self, timer: SetTimer) -> None:
        assert timer.at is not None
        delay = max(timer.at - self.world.now, 0.0)
        self.world.later(delay, self._elapsed, self.life, timer.stream, timer.ticket)
        if self.world.happens(self.rates.repeated_answer):
            self.world.fault("timer repeated", timer.ticket)
            self.world.later(delay * self.world.rng.uniform(0.5, 1.5), self._elapsed, 0, timer.stream, timer.ticket)

    def _elapsed(self, life: int, experiment: str, ticket: str) -> None:
        if life in (0, self.life) and (experiment == CLUSTER_STREAM or self._has(experiment)):
            self.handle(TimerElapsed(self.world.now, StreamId(experiment), ticket))

    def knows(self, experiment: str, sha256: str) -> bool:
        """Return whether the core is up and has the snapshot in an experiment."""
        stream = self.core.streams.get(StreamId(experiment)) if self.core is not None else None
        return stream is not None and stream.snapshots.holds(sha256)

    def journalled(self, experiment: str) -> bool:
        """Return whether the journal has the event that created an experiment."""
        return experiment in self.journal or any(
            isinstance(event, ExperimentJoined) and event.experiment == experiment
            for events in self.journal.values()
            for event in events
        )

    def _has(self, experiment: str) -> bool:
        return self.core is not None and experiment in self.core.streams

    # --------------------------------------------------------------------------------------------------------- from agents

    def hello(self, agent: Agent, session: int, event: NodeJoined) -> None:
        """Open the session of an agent."""
        if self.core is None or agent.session != session or not agent.alive:
            return
        self.sessions[agent.node] = session
        self.silences[agent.node] = self.silences.get(agent.node, 0) + 1
        agent.incarnation_known = agent.life
        self.handle(replace(event, at=self.world.now), agent)

    def message(self, agent: Agent, event: RunMessage) -> None:
        """Take a message of a run, also of an older session."""
        if self.core is not None:
            self.handle(replace(event, at=self.world.now), agent)

    def shipped(self, agent: Agent, event: SnapshotShipped) -> None:
        """Take the answer to an upload order, also of an older session."""
        if self.core is not None:
            self.handle(replace(event, at=self.world.now), agent)

    def evicted(self, agent: Agent, session: int, snapshots: tuple[str, ...]) -> None:
        """Take the list of evicted copies; that of an older session is dropped."""
        if self.core is not None and agent.session == session:
            self.handle(NodeEvicted(self.world.now, agent.node, snapshots), agent)

    def acknowledged(self, key: RunKey, sequence: int) -> None:
        """Take an agent's acknowledgement of commands."""
        if self.core is not None:
            self.core.acknowledge(key, sequence)

    def session_dropped(self, node: str) -> None:
        """Close the session of a node; its lease runs until its next hello."""
        self.sessions.pop(node, None)
        self.silences[node] = self.silences.get(node, 0) + 1
        self.world.later(LEASE, self._expire, self.life, node, self.silences[node])

    def _expire(self, life: int, node: str, silence: int) -> None:
        if life == self.life and self.silences[node] == silence and self.core is not None:
            self.handle(NodeExpired(self.world.now, node))

    # ----------------------------------------------------------------------------------------------------------- crashes

    def _go_down(self, when: str) -> None:
        assert self.core is not None
        mode, self.crash = self.crash, None
        self.world.fault("scheduler crash", when)
        old, self.core = self.core, None
        self.life += 1
        self.hosts.clear()
        self._broken.clear()  # Generators are opened anew, and a failure that is not in the journal is forgotten.
        self.given_up.clear()
        self.inboxes.clear()
        for agent in self.agents.values():
            agent.drop()
        down = self.world.rng.choice([0.5, 3.0, LEASE * 1.5])
        self.world.later(down, self._rise, old if mode == "journalled" else None)

    def _rise(self, old: Core | None) -> None:
        """Recover from the journal; the state must equal that of the old core."""
        core = Core()
        pending: list[UpCall] = []
        for event in self.journal.get(CLUSTER_STREAM, []):
            assert isinstance(event, ClusterEvent)
            core.restore_cluster(event)
        for name, events in self.journal.items():
            if name in self.finished or name == CLUSTER_STREAM:
                continue
            call = self._refeed(core, name, events)
            if call is not None:
                pending.append(call)
            if old is not None:
                dump.compare(old.streams[StreamId(name)], core.streams[StreamId(name)])
        self.core = core
        outstanding = core.recovered()
        self.world.note("the scheduler is back")
        for agent in self.agents.values():
            agent.incarnation_known = 0
        for node in core.cluster.nodes:
            self.session_dropped(node)
        for effect in outstanding:
            self._carry_out(core, effect, None)
        self._run(core, deque(), pending, None)

    def _reread_finished(self, lost: set[str]) -> None:
        """Reset finished experiments that lost events to the state of their journal, since a recovery does not load them."""
        for name in sorted(lost & self.finished):
            core = Core()
            self._refeed(core, name, self.journal[name])
            self.hosts.pop(name, None)
            self.watcher.reread(core.streams[StreamId(name)])

    def _refeed(self, core: Core, name: str, events: list[Event]) -> UpCall | None:
        """Replay a journal.

        Each up-call is repeated before its recorded answer, on the state of its first time; return the one without an answer.
        """
        call: UpCall | None = None
        for event in events:
            if isinstance(event, PolicyAnswered):
                assert call is not None, f"{name}: answer {event.answer.number} without an up-call"
                again = self._host(name).answer(core.streams[StreamId(name)], call)
                if replace(again, at=event.at) != event:
                    raise BrokenPolicyError(f"re-fed up-call {call} was answered {again}, recorded is {event}")
                call = None
            elif isinstance(event, PolicyFailed):
                assert event.unheard, event
                call = None
            assert not isinstance(event, NodeJoined | NodeExpired)
            for effect in core.restore(_of_experiment(event)):
                if isinstance(effect, UpCall):
                    call = effect
        return call


def _of_experiment(event: Event) -> StreamEvent:
    return event  # type: ignore[return-value]
