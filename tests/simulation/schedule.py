"""One seeded schedule: a cluster, experiments of a probe policy, faults, and then a quiet time in which all must end."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from hopyard.policy import Policy
from hopyard.policy.vocabulary import ExperimentId, ExperimentState, Report, StreamId, TerminateJob
from hopyard_engine.core.events import (
    DataChanged,
    ExperimentJoined,
    JobHeld,
    JobOperated,
    NodeDrained,
    NodeLeaving,
    NodeUndrained,
    Operated,
    Requested,
    SnapshotsGivenUp,
    StreamCreated,
    Updated,
)
from hopyard_engine.core.types import EarlierTrial, PlacedData, PlacedPartition, Settings
from hopyard_policies.stage_tree.policy import StageTreePolicy
from tests.simulation import faults, training
from tests.simulation.agent import Agent
from tests.simulation.invariants import Invariants
from tests.simulation.legal import InvariantError
from tests.simulation.probes import CONTENT_AT_THE_END, PROBES
from tests.simulation.scheduler import Scheduler
from tests.simulation.training import Store
from tests.simulation.world import World

MAX_POSITION = 8
DATA = PlacedData(
    "simulated",
    tuple(
        PlacedPartition(name, places=dict.fromkeys(nodes, f"/{name}"), homes=nodes)
        for name, nodes in (("train/0", ("n1", "n2")), ("train/1", ("n2", "n3")), ("eval/0", ("n1", "n3")))
    ),
)
"""The data set of the probes that evaluate: each partition is on two of the nodes."""

_READS: list[Literal["nothing", "finals", "reports"]] = ["nothing", "finals", "reports"]
QUIET_LIMIT = 3000.0  # Virtual seconds within which everything ends once faults have stopped.
EVENT_LIMIT = 6000  # Core events of one schedule: more is a livelock.


@dataclass(slots=True)
class Outcome:
    """The outcome of one schedule; `error` is empty if every invariant held."""

    seed: str
    events: int
    faults: Counter[str]
    reports: int
    error: str = ""
    story: list[str] = field(default_factory=list)


class Schedule:
    """One schedule; the same probe, seed and number of events give the same schedule."""

    def __init__(self, probe: str, seed: int, events: int, trace: bool = False) -> None:
        self.probe = probe
        self.seed = f"{probe}:{seed}"
        self.wanted = events
        self.world = World(self.seed, trace)
        rng = self.world.rng
        self.rates = self.tempered(faults.draw(rng))
        self.store = Store()
        self.agents: dict[str, Agent] = {}
        for name, slots in (("n1", 2), ("n2", 1), ("n3", rng.choice([1, 2]))):
            self.agents[name] = Agent(self.world, self.rates, name, slots, self.store, self.agents)
        self.invariants = Invariants(self.agents, self.store)
        policy = PROBES[probe]
        propose = training.sequenced if issubclass(policy, StageTreePolicy) else training.proposed
        self.scheduler = Scheduler(self.world, self.rates, self.agents, self.store, policy, self.invariants, propose)
        self.created = 0
        self._choices = random.Random(
            f"snapshots of {self.seed}"
        )  # A separate generator, so that other choices do not change.
        self._more = random.Random(f"people of {self.seed}")
        self._quiet = random.Random(f"quiet policies of {self.seed}")
        self._late = random.Random(f"more time of {self.seed}")
        self._room = random.Random(f"too little room of {self.seed}")
        self._leaving = random.Random(f"leaving nodes of {self.seed}")
        self.paused: set[str] = set()

    def tempered(self, rates: faults.Rates) -> faults.Rates:
        """Return the fault rates to use; a subclass can change the drawn ones."""
        return rates

    # ------------------------------------------------------------------------------------------------------------- run

    def run(self) -> Outcome:
        """Run the schedule to its end."""
        error = ""
        try:
            self._begin()
            self._drive()
            self._settle()
        except Exception as failure:  # noqa: BLE001 - whatever the core raises is what the schedule found
            error = f"{type(failure).__name__}: {failure}"
            if self.world.story is not None:
                self.world.note(traceback.format_exc())
        return Outcome(
            self.seed, self.scheduler.events, self.world.faults, self.invariants.reports, error, self.world.story or []
        )

    def _begin(self) -> None:
        for agent in self.agents.values():
            agent.scheduler = self.scheduler
            self.world.later(self.world.rng.uniform(0.0, 2.0), agent.connect)
        self._create()
        if self.world.rng.random() < 0.35:
            self.world.later(self.world.rng.uniform(5.0, 20.0), self._create)
        rates = self.rates
        for every, action in (
            (rates.session_drop, self._drop_session),
            (rates.partition, self._partition),
            (rates.node_death, self._kill_node),
            (rates.agent_restart, self._restart_agent),
            (rates.scheduler_crash, self._crash_scheduler),
            (rates.person, self._person),
            (rates.drain, self._drain),
        ):
            if every:
                self._again(every, action)
        if self._choices.random() < 0.5:
            self._make_room_again()
        if self._more.random() < 0.5:
            self.world.later(self._more.uniform(2.0, 10.0), self._hold_again)
        self.world.later(self._late.uniform(2.0, 10.0), self._more_time_again)
        if self._room.random() < 0.25:
            self.world.later(self._room.uniform(2.0, 10.0), self._need_room_again)
        if self._leaving.random() < 0.3:
            self.world.later(self._leaving.uniform(5.0, 30.0), self._leave_again)
        if PROBES[self.probe].on_request is not Policy.on_request:
            self.world.later(6.0, self._request)
        if PROBES[self.probe].evaluates:
            self.world.later(1.0, self._announce)

    def _drive(self) -> None:
        scheduler, world = self.scheduler, self.world
        while scheduler.events < self.wanted:
            if not world.step():
                raise InvariantError("nothing will ever happen again")
            if scheduler.core is not None and len(scheduler.over) == self.created:
                self._create()
            if world.now > 100_000.0:
                raise InvariantError(f"the schedule stands still at {scheduler.events} events")

    def _settle(self) -> None:
        """Stop the faults and wait until everything has ended."""
        world, scheduler = self.world, self.scheduler
        world.faulty = False
        world.note("faults stop")
        limit = world.now + QUIET_LIMIT
        while not self._over():
            if not world.step() or world.now > limit or scheduler.events > EVENT_LIMIT:
                raise InvariantError(f"not everything ends once faults have stopped: {self._unfinished()}")
        self._sweep()
        assert scheduler.core is not None
        self.invariants.ended(scheduler.core, world.orphans)

    def _sweep(self) -> None:
        """Let every agent open a new session, so that leftovers are deleted."""
        for agent in self.agents.values():
            agent.drop()
        end = self.world.now + 20.0
        while self.world.now < end and self.world.step():
            pass

    def _over(self) -> bool:
        core = self.scheduler.core
        if core is None or len(self.scheduler.over) < self.created:
            return False
        return all(a.alive and a.welcomed and not a.channels and not a.orders for a in self.agents.values())

    def _unfinished(self) -> str:
        core = self.scheduler.core
        if core is None:
            return "the scheduler is down"
        parts = [
            f"{stream.id} {stream.state.value} ({stream.reason}) in flight {stream.conversation.in_flight} share {stream.share} "
            f"slots {list(stream.slots)} "
            + " ".join(f"{j.id}:{j.state.value}@{j.position}" for j in stream.jobs.values() if not j.state.ended)
            for stream in core.streams.values()
            if not stream.state.ended
        ]
        parts += [f"{a.node} channels {list(a.channels)}" for a in self.agents.values() if a.channels]
        return "; ".join(parts)

    # ----------------------------------------------------------------------------------------------------- experiments

    def _create(self) -> None:
        rng = self.world.rng
        if self.scheduler.core is None:
            self.world.later(1.0, self._create)
            return
        if not self.world.faulty:
            return
        policy, quiet = PROBES[self.probe], self._quiet.random() < 0.5
        modes: list[Literal["max", "min"]] = ["max", "min"]
        mode = rng.choice(modes)
        settings = Settings(
            metric="val" if self.probe == "hops" else "score",
            mode=mode,
            target=rng.choice([None] * 7 + [0.97 if mode == "max" else 0.03]),
            max_seconds=rng.choice([None] * 7 + [rng.uniform(5.0, 40.0)]),
            max_position=MAX_POSITION if self.probe == "rungs" else rng.choice([MAX_POSITION] * 3 + [5]),
            jobs=rng.randint(3, 6),
            max_failures=3,
            max_losses=40,
            snapshot_every=rng.choice([0, 1, 2]),
            keep_latest=rng.choice([1, 2, 4]),
            keep_best=rng.choice([0, 1]),
            slots=rng.choice([None, None, 3]),
            weight=rng.choice([1.0, 2.0]),
            seed=rng.randrange(1000),
            grace=rng.choice([2.0, 10.0]),
            snapshot_quota=self._choices.choice([None, None, 0, 200, 500, 900]),
            concurrency=self._more.choice([None, None, None, 1, 2]),
            ship_every=self._more.choice([1, 1, 0, 3]),
            generator_reads=self._choices.choice(_READS),
            every_iteration=policy.every_iteration or not quiet,
            ends_jobs=not (quiet and self.probe in CONTENT_AT_THE_END),
            requests=policy.on_request is not Policy.on_request,
            space={"lr": {"int": [0, 1_000_003]}},
            evaluates=policy.evaluates,
            forks=policy.forks,
            forks_newest=policy.forks_newest,
            rebuilds=policy.rebuilds,
            plan="root" if issubclass(policy, StageTreePolicy) else "",
            lasting=issubclass(policy, StageTreePolicy),
        )
        data = None
        settings = self.adapted(settings)
        if policy.evaluates:
            data = DATA
            if policy.nodes is Policy.nodes:  # It needs slots on nodes that together have all the data.
                settings = replace(settings, slots=None, concurrency=None)
        name = f"x{self.created + 1}"
        core = self.scheduler.core
        live = [
            stream for stream in core.streams.values() if not stream.state.ended and not core.awaits_answer(stream.id)
        ]
        if live and self.joins(rng.random()):
            group = rng.choice(live)
            self.world.fault("joined a group", name)
            own = replace(settings, metric=group.settings.metric, mode=group.settings.mode)
            self.scheduler.handle(ExperimentJoined(self.world.now, group.id, ExperimentId(name), own))
        else:
            earlier = self._earlier(name) if settings.plan else ()
            self.scheduler.handle(StreamCreated(self.world.now, StreamId(name), settings, data=data, earlier=earlier))
            if not self.scheduler.journalled(name):
                for info in (info for trial in earlier for info in trial.snapshots):
                    self.store.drop(info.sha256, name)
        self.created += self.scheduler.journalled(name)  # It is missing if the scheduler crashed meanwhile.

    def _earlier(self, name: str) -> tuple[EarlierTrial, ...]:
        """Return the results of all experiments so far, and add the new experiment as an owner of their stored snapshots."""
        assert self.scheduler.core is not None
        found = []
        for stream in self.invariants.streams(self.scheduler.core).values():
            for job in (job for job in stream.jobs.values() if job.hyperparameters is not None):
                reports = tuple(Report(point.position, point.metrics, point.seconds) for point in stream.curve(job))
                saved = [e.info for e in stream.snapshots.of(job.id) if e.stored and reports]
                there = tuple(i for i in saved if i.sha256 in self.store and i.position <= reports[-1].position)
                for info in there:
                    self.store.put(self.store[info.sha256], name)
                if reports:
                    found.append(
                        EarlierTrial(f"{stream.id}/{job.id}", dict(job.hyperparameters or {}), reports, None, there)
                    )
        return tuple(found)

    def adapted(self, settings: Settings) -> Settings:
        """Return the settings of a new experiment; a subclass can change the drawn ones."""
        return settings

    def joins(self, drawn: float) -> bool:
        """Return whether a new experiment joins an existing one."""
        return drawn < 0.4

    def _announce(self) -> None:
        """Announce the data of the nodes that are up; each always has the same partitions."""
        self.world.later(1.0, self._announce)
        core = self.scheduler.core
        if core is None:
            return
        up = {name for name, node in core.cluster.nodes.items() if node.up}
        now = tuple(
            replace(one, places={node: path for node, path in one.places.items() if node in up})
            for one in DATA.partitions
        )
        there = [
            stream.id
            for stream in core.streams.values()
            if not stream.state.ended and stream.data is not None and stream.data.differs(now)
        ]
        for name in there:
            if self.scheduler.core is not None:
                self.scheduler.handle(DataChanged(self.world.now, name, now))

    def _make_room_again(self) -> None:
        if self.world.faulty:
            self.world.later(self._choices.uniform(1.0, 10.0), self._make_room_again)
            self._choices.choice(list(self.agents.values())).make_room()

    def _need_room_again(self) -> None:
        """Let the store evict some snapshots of an experiment, needed or not."""
        if not self.world.faulty:
            return
        self.world.later(self._room.uniform(0.5, 5.0), self._need_room_again)
        core = self.scheduler.core
        there = (
            [stream for stream in core.streams.values() if not core.awaits_answer(stream.id)]
            if core is not None
            else []
        )
        if there:
            stream = self._room.choice(there)
            hashes = sorted({entry.info.sha256 for entry in stream.snapshots.entries()})
            chosen = tuple(sha256 for sha256 in hashes if self._room.random() < 0.5)
            self.world.fault("the store needed room", stream.id)
            self.scheduler.handle(SnapshotsGivenUp(self.world.now, stream.id, chosen))

    # ---------------------------------------------------------------------------------------------------------- faults

    def _again(self, every: float, action: Callable[[], None]) -> None:
        self.world.later(self.world.rng.expovariate(1.0 / every), self._strike, every, action)

    def _strike(self, every: float, action: Callable[[], None]) -> None:
        if self.world.faulty:
            action()
            self._again(every, action)

    def _any_agent(self) -> Agent:
        return self.world.rng.choice(list(self.agents.values()))

    def _drop_session(self) -> None:
        agent = self._any_agent()
        if agent.session is not None:
            self.world.fault("session drop", agent.node)
            agent.drop()

    def _partition(self) -> None:
        agent = self._any_agent()
        if agent.alive and not agent.partitioned:
            self.world.fault("network partition", agent.node)
            agent.partitioned = True
            agent.drop()
            self.world.later(self.world.rng.choice([2.0, 8.0, 12.0, 30.0]), self._heal, agent)

    def _heal(self, agent: Agent) -> None:
        agent.partitioned = False

    def _kill_node(self) -> None:
        agent = self._any_agent()
        if agent.alive:
            self.world.fault("node death", agent.node)
            agent.die(disk_lost=True)
            self.world.later(self.world.rng.choice([1.0, 15.0, 40.0]), self._return, agent)

    def _return(self, agent: Agent) -> None:
        self.world.fault("node return", agent.node)
        agent.rise()

    def _restart_agent(self) -> None:
        agent = self._any_agent()
        if agent.alive:
            self.world.fault("agent restart", agent.node)
            agent.die(disk_lost=False)
            slots = self.world.rng.randint(1, len(agent.slots))
            if slots < len(agent.specs):
                self.world.fault("node with fewer slots", agent.node)
            agent.specs = agent.slots[:slots]
            self.world.later(self.world.rng.choice([0.5, 3.0, 14.0]), agent.rise)

    def _drain(self) -> None:
        agent = self._any_agent()
        core = self.scheduler.core
        if core is not None and agent.node in core.cluster.nodes:
            self.world.fault("node drained", agent.node)
            self.scheduler.handle(NodeDrained(self.world.now, agent.node))
            self.world.later(self.world.rng.choice([5.0, 20.0]), self._maintain, agent)

    def _maintain(self, agent: Agent) -> None:
        """Restart the agent of a drained node, and undrain the node."""
        if agent.alive:
            agent.die(disk_lost=False)
            self.world.later(self.world.rng.choice([0.5, 14.0]), agent.rise)
        self.world.later(self.world.rng.choice([0.1, 20.0]), self._undrain, agent)

    def _undrain(self, agent: Agent) -> None:
        """Undrain a node, and repeat that until it has taken effect: a crash may lose it, also one in the same batch."""
        core = self.scheduler.core
        node = core.cluster.nodes.get(agent.node) if core is not None else None
        if core is not None and (node is None or node.drain is None):
            return
        if node is not None:
            self.world.fault("node undrained", agent.node)
            self.scheduler.handle(NodeUndrained(self.world.now, agent.node))
        self.world.later(1.0, self._undrain, agent)

    def _leave_again(self) -> None:
        """Let an agent announce that it is stopping, end within its grace, and start anew."""
        if not self.world.faulty:
            return
        self.world.later(self._leaving.uniform(10.0, 60.0), self._leave_again)
        agent = self._leaving.choice(list(self.agents.values()))
        if agent.alive and agent.welcomed and self.scheduler.core is not None:
            self.world.fault("agent leaves", agent.node)
            self.scheduler.handle(NodeLeaving(self.world.now, agent.node, f"life-{agent.life}"))
            self.world.later(self._leaving.choice([0.5, 5.0, 20.0]), self._end, agent, agent.life)

    def _end(self, agent: Agent, life: int) -> None:
        """End an agent that announced it. If the scheduler released the node, nothing is lost even with its disk."""
        if agent.alive and agent.life == life:
            agent.die(disk_lost=agent.released_in == life)
            self.world.later(self._leaving.choice([0.5, 14.0]), agent.rise)

    def _crash_scheduler(self) -> None:
        if self.scheduler.core is not None:
            self.scheduler.crash = self.world.rng.choice(["journalled", "lost"])

    def _person(self) -> None:
        core = self.scheduler.core
        running = (
            [stream for stream in core.streams.values() if stream.state is ExperimentState.RUNNING]
            if core is not None
            else []
        )
        if running:
            stream = self.world.rng.choice(running)
            experiment = self.world.rng.choice(stream.running)
            action: Literal["pause", "stop"] = "stop" if self.world.rng.random() < 0.1 else "pause"
            self.world.fault(f"{'paused' if action == 'pause' else 'stopped'} by a person", experiment.id)
            self.scheduler.handle(Operated(self.world.now, stream.id, action, experiment.id))
            self.world.later(self.world.rng.uniform(0.2, 15.0), self._resume, stream.id, experiment.id)

    def _resume(self, stream: str, experiment: str) -> None:
        core = self.scheduler.core
        if core is None:
            self.world.later(1.0, self._resume, stream, experiment)
        elif stream in core.streams:
            self.world.fault("resumed by a person", experiment)
            self.scheduler.handle(Operated(self.world.now, StreamId(stream), "resume", ExperimentId(experiment)))
            found = self.scheduler.core.find(ExperimentId(experiment)) if self.scheduler.core is not None else None
            if (
                found is None
                or found[1].state in (ExperimentState.PAUSED, ExperimentState.PAUSING)
                or core.awaits_answer(StreamId(stream))
            ):
                self.world.later(1.0, self._resume, stream, experiment)

    def _hold_again(self) -> None:
        """Let a person pause a job for a while, or change a limit."""
        if not self.world.faulty:
            return
        self.world.later(self._more.uniform(2.0, 15.0), self._hold_again)
        core = self.scheduler.core
        there = (
            [stream for stream in core.streams.values() if stream.open and not stream.state.ended]
            if core is not None
            else []
        )
        if not there:
            return
        stream = self._more.choice(there)
        if self._more.random() < 0.2:
            self.world.fault("limit changed by a person", stream.id)
            limit = self._more.choice([1, 2, None])
            limit = None if stream.data is not None else limit
            cleared = ("concurrency",) if limit is None else ()
            request = f"u{self.world.now}"
            self.scheduler.handle(Updated(self.world.now, stream.id, request, concurrency=limit, cleared=cleared))
            return
        job = self._more.choice(list(stream.open))
        self.world.fault("job paused by a person", f"{stream.id} {job}")
        self.scheduler.handle(JobHeld(self.world.now, stream.id, job, True))
        self.world.later(self._more.uniform(0.2, 20.0), self._let_go, stream.id, job)

    def _more_time_again(self) -> None:
        """Let a person extend the time of an experiment that ran out of time."""
        if not self.world.faulty:
            return
        self.world.later(self._late.uniform(1.0, 15.0), self._more_time_again)
        core = self.scheduler.core
        streams = (
            [stream for stream in core.streams.values() if not core.awaits_answer(stream.id)]
            if core is not None
            else []
        )
        late = [
            (stream, m) for stream in streams for m in stream.experiments.values() if m.state.ended and m.out_of_time
        ]
        if late and self.scheduler.crash is None:  # Otherwise a crash could lose it unnoticed.
            stream, experiment = self._late.choice(late)
            self.world.fault("more time by a person", experiment.id)
            self.scheduler.reopened(stream.id, experiment.id)
            seconds = self._late.uniform(1.0, 60.0)
            more = Updated(
                self.world.now, stream.id, f"t{self.world.now}", more_seconds=seconds, experiment=experiment.id
            )
            self.scheduler.handle(more)

    def _let_go(self, experiment: str, job: str) -> None:
        """Let the person resume or, sometimes, end the job, and repeat that until it has taken effect."""
        core = self.scheduler.core
        stream = core.streams.get(StreamId(experiment)) if core is not None else None
        if core is None or (stream is not None and core.awaits_answer(StreamId(experiment))):
            self.world.later(1.0, self._let_go, experiment, job)
        elif stream is not None and job in stream.jobs and stream.jobs[job].held:
            now = self.world.now
            end = self._more.random() < 0.1
            ended = JobOperated(now, StreamId(experiment), TerminateJob(job))
            self.scheduler.handle(ended if end else JobHeld(now, StreamId(experiment), job, False))
            self.world.later(1.0, self._let_go, experiment, job)  # A crash may have lost it.

    def _request(self) -> None:
        core = self.scheduler.core
        if core is not None and "x1" in core.streams and not core.streams[StreamId("x1")].state.ended:
            self.scheduler.handle(Requested(self.world.now, StreamId("x1"), "r1", self.scheduler.propose(4242), 4))


def run(probe: str, seed: int, events: int = 200, trace: bool = False) -> Outcome:
    """Run one schedule and return its outcome."""
    return Schedule(probe, seed, events, trace).run()
