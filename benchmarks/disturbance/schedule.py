"""Draws a schedule of disturbances with a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from disturbance.proxy import Direction

Kind = Literal["kill", "stop", "drop", "delay", "cut", "half_close"]

PROCESS_KINDS: Final[tuple[Kind, ...]] = ("kill", "stop")
LINK_KINDS: Final[tuple[Kind, ...]] = ("drop", "delay", "cut", "half_close")

SHORTEST: Final = 0.5
LONGEST: Final = 20.0
"""Least and most seconds of a stop, a drop or a cut: the longest exceeds the lease of a node (10 s). Stretched like the lease."""

_DELAYS: Final = (0.02, 0.5)


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Something that is done to a process or a link.

    Attributes:
        at: Seconds after the begin of the training.
        kind: What is done.
        target: Name of the process or of the link.
        seconds: How long it lasts; 0: a moment.
        direction: The direction of a link that is disturbed.
        latency: For "delay": the seconds by which data come later.
        breaks: For "drop" and "half_close": whether the connection breaks at the end.
        pick: A number in [0, 1) that selects one of several processes.
    """

    at: float
    kind: Kind
    target: str
    seconds: float = 0.0
    direction: Direction = Direction.BOTH
    latency: float = 0.0
    breaks: bool = False
    pick: float = 0.0

    def __str__(self) -> str:
        """Return what is done, when, and for how long."""
        where = f" {self.direction}" if self.kind in ("drop", "delay", "half_close") else ""
        lasts = f" for {self.seconds:.1f} s" if self.seconds else ""
        late = f" by {1000 * self.latency:.0f} ms" if self.latency else ""
        return f"{self.at:6.1f} s: {self.kind} {self.target}{where}{late}{lasts}{', then cut' if self.breaks else ''}"


def schedule(
    seed: int, seconds: float, processes: Sequence[str], links: Sequence[str], gap: float = 2.0, stretch: float = 1.0
) -> list[Disturbance]:
    """Return the disturbances of a round in the order of their times. Equal arguments give equal schedules.

    Each pair of a kind and a target occurs once before one occurs again.

    Args:
        seed: Seed of everything that is drawn.
        seconds: All disturbances begin before this time. They may last longer.
        processes: Names of processes, which are killed and stopped.
        links: Names of links, on which the other kinds occur.
        gap: The mean of the seconds between the beginnings of two disturbances.
        stretch: By how much disturbances last longer than usual.
    """
    rng = random.Random(seed)
    deck = _deck(rng, processes, links)
    found: list[Disturbance] = []
    at = rng.expovariate(1 / gap)
    while at < seconds:
        kind, target = next(deck)
        found.append(_drawn(rng, at, kind, target, stretch))
        at += rng.expovariate(1 / gap)
    return found


def _deck(rng: random.Random, processes: Sequence[str], links: Sequence[str]) -> Iterator[tuple[Kind, str]]:
    pairs = [(kind, target) for kind in PROCESS_KINDS for target in processes]
    pairs += [(kind, target) for kind in LINK_KINDS for target in links]
    if not pairs:
        raise ValueError("a schedule needs a process or a link to disturb")
    while True:
        rng.shuffle(pairs)
        yield from pairs


def _drawn(rng: random.Random, at: float, kind: Kind, target: str, stretch: float) -> Disturbance:
    """Draw the details. Durations are drawn by their logarithm: as many are below 3 s as above."""
    pick, lasts = rng.random(), stretch * SHORTEST * (LONGEST / SHORTEST) ** rng.random()
    direction = rng.choice([Direction.FORWARD, Direction.BACKWARD, Direction.BOTH])
    breaks, moment = rng.random() < 0.5, rng.random() < 0.5
    match kind:
        case "kill":
            return Disturbance(at, kind, target, pick=pick)
        case "stop":
            return Disturbance(at, kind, target, lasts, pick=pick)
        case "cut":
            return Disturbance(at, kind, target, 0.0 if moment else lasts)
        case "drop":
            return Disturbance(at, kind, target, lasts, direction, breaks=breaks)
        case "delay":
            low, high = _DELAYS
            return Disturbance(at, kind, target, lasts, direction, latency=low * (high / low) ** pick)
        case "half_close":
            return Disturbance(at, kind, target, lasts, direction, breaks=True)
