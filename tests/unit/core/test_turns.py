"""Tests of turns: which experiments get slots if there are fewer slots than experiments, and how long the others wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard.policy.vocabulary import Answer, StreamId
from hopyard_engine.core import CLUSTER_STREAM, Core
from hopyard_engine.core.cluster.turns import TURN_SECONDS
from hopyard_engine.core.effects import Effect, Record, SetTimer, UpCall
from hopyard_engine.core.events import (
    Event,
    NodeJoined,
    PolicyAnswered,
    ShareSet,
    StreamCreated,
    StreamEvent,
    TimerElapsed,
)
from hopyard_engine.core.types import SlotSpec
from tests.unit.core.rig import settings

pytestmark = pytest.mark.quick

Q = TURN_SECONDS


class Shared:
    """A core with experiments without jobs on one node, whose slots return at once. `run` elapses its timer in virtual time.

    Attributes:
        shares: The present share of each experiment.
        history: Each change of a share: the time, the experiment, the share.
    """

    def __init__(self, slots: int) -> None:
        self.core = Core()
        self.now = 0.0
        self.timer: float | None = None
        self.gangs: dict[str, int] = {}
        self.demands: dict[str, int] = {}
        self.shares: dict[str, int] = {}
        self.history: list[tuple[float, str, int]] = []
        self.journals: dict[str, list[StreamEvent]] = {}
        self.join(slots)

    def join(self, slots: int) -> None:
        self.feed(NodeJoined(self.now, "n", str(self.now), tuple(SlotSpec(f"n/{i}") for i in range(slots))))

    def create(self, name: str, weight: float = 1.0, gang: int = 1) -> None:
        self.gangs[name] = gang
        self.shares[name] = 0
        self.feed(StreamCreated(self.now, StreamId(name), settings(weight=weight, idle=1e9)))

    def feed(self, event: Event) -> list[Effect]:
        waiting, result = [event], []
        while waiting:
            for effect in self.core.handle(waiting.pop(0)):
                result.append(effect)
                match effect:
                    case SetTimer(stream=stream) if stream == CLUSTER_STREAM:
                        self.timer = effect.at
                    case UpCall():
                        waiting.append(self.answer(effect))
                    case Record(event=ShareSet() as changed):
                        self.shares[changed.stream] = changed.slots
                        self.history.append((self.now, changed.stream, changed.slots))
                if isinstance(effect, Record):
                    self.journals.setdefault(effect.stream, []).append(effect.event)  # type: ignore[arg-type]
        return result

    def answer(self, call: UpCall) -> PolicyAnswered:
        name = call.stream
        return PolicyAnswered(self.now, name, Answer(call.number, None, ()), self.demands.get(name), self.gangs[name])

    def run(self, until: float) -> None:
        while self.timer is not None and self.timer <= until:
            self.now, self.timer = self.timer, None
            self.feed(TimerElapsed(self.now, CLUSTER_STREAM, "core/turn"))
        self.now = until

    def due(self) -> float | None:
        """Return the time at which the timer elapses; None: it is not set."""
        return self.timer

    def served(self) -> str:
        """Return the names of the experiments that have a share."""
        return "".join(sorted(name for name, share in self.shares.items() if share))

    def rounds(self, count: int) -> list[str]:
        """Return who has a share in each of the next `count` intervals of `TURN_SECONDS`."""
        start, result = self.now, []
        for number in range(count):
            self.run(start + number * Q)
            result.append(self.served())
        return result


def test_weight_1_next_to_weight_10_on_4_slots_never_waits() -> None:
    shared = Shared(4)
    shared.create("light", 1.0)
    shared.create("heavy", 10.0)
    assert shared.shares == {"light": 1, "heavy": 3}
    assert shared.due() is None


def test_five_equal_experiments_on_3_slots_take_turns() -> None:
    shared = Shared(3)
    for name in "abcde":
        shared.create(name)
    # At the end of each turn the three go to the back of the queue: de, then abc, and so on. Each is served in 3 of 5 turns.
    assert shared.rounds(11) == ["abc", "ade", "bcd", "abe", "cde", *["abc", "ade", "bcd", "abe", "cde"], "abc"]
    # Who is served again keeps its share.
    assert [change for change in shared.history if change[1] == "a"] == [
        (0.0, "a", 3),
        (0.0, "a", 2),
        (0.0, "a", 1),
        *((n * Q, "a", share) for n, share in [(2, 0), (3, 1), (4, 0), (5, 1), (7, 0), (8, 1), (9, 0), (10, 1)]),
    ]


def test_turns_are_as_long_as_the_weights() -> None:
    shared = Shared(1)
    shared.create("a", 1.0)
    shared.create("b", 3.0)
    assert shared.rounds(9) == ["a", "b", "b", "b", "a", "b", "b", "b", "a"]


def test_without_a_wait_there_is_no_timer() -> None:
    shared = Shared(2)
    shared.create("a")
    shared.create("b")
    assert shared.due() is None
    shared.create("c")
    assert shared.due() == Q
    shared.demands["b"] = 0
    shared.run(Q)  # The policy of b is told that the share is 0, and can use no slot from then on.
    assert (shared.served(), shared.due()) == ("ac", None)


def test_a_new_experiment_waits_for_a_turn_that_has_begun_and_for_none_that_is_over() -> None:
    shared = Shared(1)
    shared.create("a")
    shared.now = 0.4 * Q
    shared.create("b")
    assert (shared.served(), shared.due()) == ("a", Q)
    shared.run(Q)
    assert shared.served() == "b"
    late = Shared(1)
    late.create("a")
    late.now = 1.5 * Q
    late.create("b")
    assert late.served() == "b"


def test_gangs_that_do_not_fit_together_take_turns() -> None:
    shared = Shared(4)
    shared.create("a")
    shared.create("b", gang=4)
    shared.create("c", gang=3)
    shared.run(0.0)
    assert shared.rounds(4) == ["ac", "b", "ac", "b"]
    # Slots that the gang leaves are used.
    assert shared.shares == {"a": 0, "b": 4, "c": 0}


def test_who_needs_more_than_there_is_takes_no_turn() -> None:
    shared = Shared(2)
    shared.create("a", gang=3)
    shared.create("b")
    shared.create("c")
    shared.create("d", gang=2)
    assert shared.rounds(4) == ["bc", "d", "bc", "d"]


def test_a_restart_serves_first_who_has_waited_longest() -> None:
    shared = Shared(1)
    for name in "cba":
        shared.create(name)
        shared.now += 1.0
    assert shared.rounds(2) == ["c", "b"]
    restarted = Shared(1)
    restarted.core = Core()
    for name, events in shared.journals.items():
        for event in events:
            if name == CLUSTER_STREAM:
                restarted.core.restore_cluster(event)  # type: ignore[arg-type]
            else:
                restarted.core.restore(event)
    restarted.now, restarted.gangs, restarted.shares = shared.now, shared.gangs, dict(shared.shares)
    restarted.core.recovered()
    restarted.feed(NodeJoined(restarted.now, "n", "0.0", (SlotSpec("n/0"),)))
    assert restarted.rounds(4) == ["b", "a", "c", "b"]


@st.composite
def clusters(draw: st.DrawFn) -> tuple[int, list[tuple[float, int]]]:
    slots = draw(st.integers(1, 4))
    one = st.tuples(st.sampled_from([1.0, 2.0, 3.0]), st.integers(1, slots))
    return slots, draw(st.lists(one, min_size=2, max_size=6))


@pytest.mark.merge
@given(clusters(), st.booleans())
def test_the_wait_is_bounded(cluster: tuple[int, list[tuple[float, int]]], single: bool) -> None:
    slots, experiments = cluster
    shared = Shared(slots)
    weights = {}
    for number, (weight, gang) in enumerate(experiments):
        weights[str(number)] = weight
        shared.create(str(number), weight, 1 if single else gang)
    turns = {name: Q * weight / min(weights.values()) for name, weight in weights.items()}
    shared.run(6 * sum(turns.values()))
    for name in weights:
        others = sum(length for other, length in turns.items() if other != name)
        bound = others / slots if single else others
        waited_from: float | None = 0.0
        for at, who, share in [*shared.history, (shared.now, name, shared.shares[name])]:
            if who == name:
                if waited_from is not None:
                    assert at - waited_from <= bound + 1e-6
                waited_from = at if share == 0 and waited_from is None else (None if share else waited_from)
