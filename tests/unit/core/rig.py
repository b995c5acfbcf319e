"""A test fixture that drives an engine core with one experiment: the test feeds events and messages of agents and inspects the effects.

A function of the test answers the up-calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

from hopyard.policy.vocabulary import (
    Answer,
    Call,
    Command,
    CreateJob,
    Decision,
    IterationFinish,
    Report,
    RunEndReason,
    RunKey,
    StartJob,
    StreamId,
    WakeAt,
)
from hopyard_engine.core import Core
from hopyard_engine.core.effects import CommandBody, Effect, Record, Send, UpCall
from hopyard_engine.core.events import (
    Ended,
    Event,
    NodeExpired,
    NodeJoined,
    PolicyAnswered,
    Reports,
    Requested,
    RunBody,
    RunMessage,
    SnapshotStored,
    SnapshotTaken,
    Started,
    StreamCreated,
)
from hopyard_engine.core.state.entities import Job, Run
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.types import EarlierTrial, Measured, PlacedData, Settings, SlotSpec, SnapshotInfo
from tests.reasons import said

Script = Callable[[Call], tuple[Decision | None, list[Command]]]
E = TypeVar("E")


def quiet(call: Call) -> tuple[Decision | None, list[Command]]:
    """Answer an up-call with CONTINUE where a decision is due, and without commands."""
    return (Decision.proceed() if isinstance(call, IterationFinish) else None), []


def settings(**changes: object) -> Settings:
    """Return the settings of a small experiment, with changes."""
    terms: dict[str, object] = {"metric": "score", "mode": "max", "max_position": 10, "jobs": 8, "keep_latest": 1}
    return Settings(**{**terms, **changes})  # type: ignore[arg-type]


def snapshot(position: int, name: str = "") -> SnapshotInfo:
    """Return a snapshot of 10 bytes at a position; `name` replaces its SHA-256."""
    return SnapshotInfo(position, name or f"s{position}", 10)


class Rig:
    """An engine core with experiment x on node n1.

    `script` answers the up-calls and may be replaced at any time; `effects` has the effects of the last event; with `hold`, up-calls
    wait in `held`.
    """

    def __init__(self, *, capacity: int = 2, **terms: object) -> None:
        data: PlacedData | None = terms.pop("data", None)  # type: ignore[assignment]
        earlier: tuple[EarlierTrial, ...] = terms.pop("earlier", ())  # type: ignore[assignment]
        scaling: tuple[Measured, ...] = terms.pop("scaling", ())  # type: ignore[assignment]
        self.hardware: str = terms.pop("hardware", "")  # type: ignore[assignment]
        self.core = Core()
        self.now = 100.0
        self.script: Script = quiet
        self.demand: Callable[[], int | None] = lambda: None
        self.nodes: tuple[str, ...] = ()
        self.calls: list[Call] = []
        self.effects: list[Effect] = []
        self.journal: list[Event] = []
        self.sequences: dict[RunKey, int] = {}
        self.hold = False
        self.held: deque[UpCall] = deque()
        self.join("n1", capacity)
        self.feed(
            StreamCreated(self.now, StreamId("x"), settings(**terms), data=data, earlier=earlier, scaling=scaling)
        )

    @property
    def stream(self) -> Stream:
        return self.core.streams[StreamId("x")]

    def job(self, name: str = "1") -> Job:
        return self.stream.jobs[name]

    def run(self, name: str = "1") -> Run:
        run = self.job(name).run
        assert run is not None
        return run

    # ----------------------------------------------------------------------------------------------------------- events

    def feed(self, event: Event) -> list[Effect]:
        """Handle an event and all answers of the policy that follow; return all effects."""
        self.effects = []
        waiting = deque([event])
        while waiting:
            effects = self.core.handle(waiting.popleft())
            self.effects += effects
            for effect in effects:
                if isinstance(effect, Record) and effect.stream == "x":
                    self.journal.append(effect.event)
                if isinstance(effect, UpCall):
                    self.calls.append(effect.call)
                    if self.hold:
                        self.held.append(effect)
                    else:
                        waiting.append(self.answer(effect))
        return self.effects

    def answer(self, call: UpCall) -> PolicyAnswered:
        """Return the answer of the script to an up-call."""
        decision, commands = self.script(call.call)
        if call.number == 1:  # With an open timer the experiment does not end.
            commands = [WakeAt("keep", 1e9), *commands]
        said = Answer(call.number, decision, tuple(commands))
        return PolicyAnswered(self.now, call.stream, said, self.demand(), nodes=self.nodes)

    def join(self, node: str, slots: int = 1, life: str = "a", **rest: tuple[object, ...]) -> list[Effect]:
        specs = tuple(SlotSpec(f"{node}/{i}", hardware=self.hardware) for i in range(slots))
        return self.feed(NodeJoined(self.now, node, life, specs, **rest))  # type: ignore[arg-type]

    def expire(self, node: str) -> list[Effect]:
        return self.feed(NodeExpired(self.now, node))

    def command(self, *commands: Command) -> list[Effect]:
        """Make an up-call, and answer it with these commands."""
        given = list(commands)

        def once(call: Call) -> tuple[Decision | None, list[Command]]:
            self.script = before
            return quiet(call)[0], given

        before, self.script = self.script, once
        self.now += 0.001
        effects = self.feed(Requested(self.now, StreamId("x"), f"r{self.now}", {}, 1))
        assert self.script is before, "no up-call was made"
        return effects

    def say(self, key: RunKey, body: RunBody, sequence: int | None = None) -> list[Effect]:
        """Feed a message of a run, with the next number of its channel or a given one."""
        number = self.sequences.get(key, 0) + 1 if sequence is None else sequence
        self.sequences[key] = max(number, self.sequences.get(key, 0))
        return self.feed(RunMessage(self.now, *key, number, body))

    # --------------------------------------------------------------------------------------------------------- shortcuts

    def key(self, name: str = "1", attempt: int | None = None, rank: int = 0) -> RunKey:
        return RunKey(StreamId("x"), name, attempt or self.job(name).attempt, rank)

    def create(self, lr: float = 0.1) -> str:
        name = str(self.stream.ordinals + 1)
        self.command(CreateJob(name, {"lr": lr}))
        return name

    def start(self, name: str = "1", *slots: str, **options: object) -> list[Effect]:
        """Start a job and let rank 0 report that it trains."""
        effects = self.command(StartJob(name, slots or ("n1/0",), **options))  # type: ignore[arg-type]
        started = self.run(name)
        self.say(self.key(name), Started(started.start))
        return effects

    def report(self, position: int, score: float = 0.5, name: str = "1", **rest: object) -> list[Effect]:
        body = Reports((Report(position, {"score": score}, **rest),))  # type: ignore[arg-type]
        return self.say(self.key(name), body)

    def taken(self, position: int, name: str = "1", sha256: str = "") -> list[Effect]:
        return self.say(self.key(name), SnapshotTaken(snapshot(position, sha256)))

    def stored(self, position: int, name: str = "1", attempt: int | None = None, sha256: str = "") -> list[Effect]:
        return self.say(self.key(name, attempt), SnapshotStored(position, sha256 or f"s{position}"))

    def kept(self, *positions: int) -> None:
        """Let job 1 report and save at each position, with all snapshots uploaded."""
        for position in positions:
            self.report(position)
            self.taken(position)
            self.stored(position)

    def ended(
        self, reason: RunEndReason, position: int, saved: SnapshotInfo | None = None, name: str = "1", rank: int = 0
    ) -> list[Effect]:
        failed = reason is RunEndReason.FAILED
        return self.say(self.key(name, rank=rank), Ended(reason, position, saved, failed, said("told")))

    def sent(self, kind: type[CommandBody] | None = None) -> list[CommandBody]:
        """Return the commands that the last event sent to agents, optionally of one kind."""
        bodies = [effect.body for effect in self.effects if isinstance(effect, Send)]
        return [body for body in bodies if kind is None or isinstance(body, kind)]

    def of(self, kind: type[E]) -> list[E]:
        """Return the effects of one kind of the last event."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def called(self, kind: type[E]) -> list[E]:
        """Return all up-calls of one kind so far."""
        return [call for call in self.calls if isinstance(call, kind)]
