"""Dividing slots that are not all alike, or that are wanted several at once.

Where every slot serves everybody singly, this is `shares.water_fill`. Otherwise slots are handed out as there, to the
claim with the lowest level after getting them, but

- in whole gangs: an experiment whose jobs need two slots at once gets none, two, four ...; one slot would only be kept
  from the others. So no two experiments can wait for ever for what the other one holds;
- of a kind that serves: who has got a slot moves to another kind where that lets somebody else have one (augmenting
  paths), so what only few slots can serve is not used up by those whom any slot serves. For single slots this is
  the weighted max-min fair division among all that are possible.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hopyard_engine.core.cluster.fair_share import Claim, water_fill


class SlotKind(NamedTuple):
    """What slots have, or what a job needs of each of its slots: CPU threads and GPUs.

    `wished` are those of the wants that are `picky` whom these slots are of use to.
    """

    cpus: int = 1
    gpus: int = 0
    wished: frozenset[str] = frozenset()

    def serves(self, need: SlotKind) -> bool:
        """Whether a slot of this kind has what is needed."""
        return self.cpus >= need.cpus and self.gpus >= need.gpus

    def __str__(self) -> str:
        cpus = f"{self.cpus} CPU thread{'s' if self.cpus != 1 else ''}"
        return f"{cpus} and {self.gpus or 'no'} GPU{'s' if self.gpus > 1 else ''}"


ANY = SlotKind()


@dataclass(frozen=True, slots=True)
class Want:
    """What one experiment may get, and holds.

    Attributes:
        claim: Its weight and the most slots it may get.
        gang: So many slots at once (>= 1), or none.
        need: What each slot must have.
        granted: The slots that it has, by kind: it keeps them where that costs nobody anything.
        picky: Whether only slots whose kind names it are of use to it.
    """

    claim: Claim
    gang: int = 1
    need: SlotKind = ANY
    granted: Mapping[SlotKind, int] = field(default_factory=dict)
    picky: bool = False

    def takes(self, kind: SlotKind) -> bool:
        """Whether slots of a kind are of use to it."""
        return kind.serves(self.need) and (not self.picky or self.claim.name in kind.wished)


@dataclass(frozen=True, slots=True)
class Division:
    """Who gets how many slots. `plan` says of which kinds; None: of any."""

    shares: dict[str, int]
    plan: dict[str, Counter[SlotKind]] | None

    def room(self, name: str, kind: SlotKind, held: int) -> bool:
        """Whether one that holds so many slots of a kind may get another of them."""
        return self.plan is None or held < self.plan[name][kind]

    def surplus(self, name: str, kind: SlotKind, held: int) -> int:
        """How many of the slots that it holds of a kind it should have of another kind instead."""
        return 0 if self.plan is None else max(held - self.plan[name][kind], 0)


def divide(slots: Mapping[SlotKind, int], wants: Sequence[Want]) -> Division:
    """Divides slots, given by kind, in the order of the wants where levels are equal."""
    everything_serves = all(want.takes(kind) for kind in slots for want in wants)
    if everything_serves and all(want.gang == 1 for want in wants):
        return Division(water_fill(sum(slots.values()), [want.claim for want in wants]), None)
    handing = _Handing(slots, wants)
    heap = [(handing.level(want), order) for order, want in enumerate(wants)]
    heapq.heapify(heap)
    while heap:  # Only what a want itself gets changes its level.
        order = heap[0][1]
        if handing.give(wants[order]):
            heapq.heapreplace(heap, (handing.level(wants[order]), order))
        else:
            heapq.heappop(heap)
    plan = {name: +kinds for name, kinds in handing.plan.items()}
    return Division({name: sum(kinds.values()) for name, kinds in plan.items()}, plan)


class _Handing:
    """Slots being handed out: `plan` so far, and what is free.

    What every step asks for is kept and not counted anew, since a cluster may have thousands of slots and hundreds of
    wants: sizes, and how many slots of a kind their holders have not got in the plan (yet).
    """

    def __init__(self, slots: Mapping[SlotKind, int], wants: Sequence[Want]) -> None:
        self.plan: dict[str, Counter[SlotKind]] = {want.claim.name: Counter() for want in wants}
        self._free = Counter(slots)
        self._granted = {want.claim.name: want.granted for want in wants}
        self._sizes = dict.fromkeys(self.plan, 0)
        self._kinds = {want.claim.name: [kind for kind in slots if want.takes(kind)] for want in wants}
        self._spoken_for = {kind: sum(want.granted.get(kind, 0) for want in wants) for kind in slots}
        self._steps: list[tuple[str, SlotKind, int]] = []

    def level(self, want: Want) -> float:
        """Slots for each unit of weight, once it has got a further gang."""
        return (self._sizes[want.claim.name] + want.gang) / want.claim.weight

    def give(self, want: Want) -> bool:
        """Gives a gang of slots, or nothing if it may not have or cannot get so many."""
        if self._sizes[want.claim.name] + want.gang > want.claim.cap:
            return False
        self._steps.clear()
        if all(self._give_one(want) for _ in range(want.gang)):
            return True
        for name, kind, change in reversed(self._steps.copy()):
            self._change(name, kind, -change)
        return False

    def _give_one(self, want: Want) -> bool:
        """Takes a free slot that serves, if need be after others have moved to other kinds."""
        name = want.claim.name
        came: dict[SlotKind, tuple[SlotKind, str] | None] = dict.fromkeys(self._preferred(name))
        queue = deque(came)
        for kind in came:  # Most often one of its own is free, and nobody need move.
            if self._free[kind] > 0:
                self._change(name, kind, 1)
                return True
        while queue:
            kind = queue.popleft()
            if self._free[kind] > 0:
                self._take(name, kind, came)
                return True
            for other, planned in self.plan.items():
                if planned[kind] > 0 and any(instead not in came for instead in self._kinds[other]):
                    for instead in self._preferred(other):
                        if instead not in came:
                            came[instead] = (kind, other)
                            queue.append(instead)
        return False

    def _take(self, name: str, kind: SlotKind, came: Mapping[SlotKind, tuple[SlotKind, str] | None]) -> None:
        step = came[kind]
        while step is not None:  # Whoever had a slot of the kind before moves to this one.
            before, mover = step
            self._change(mover, before, -1)
            self._change(mover, kind, 1)
            kind, step = before, came[before]
        self._change(name, kind, 1)

    def _change(self, name: str, kind: SlotKind, change: int) -> None:
        """One slot of a kind more (1) or less (-1) for somebody."""
        planned = self.plan[name]
        before = self._unplanned(name, kind)
        planned[kind] += change
        self._sizes[name] += change
        self._free[kind] -= change
        self._spoken_for[kind] += self._unplanned(name, kind) - before
        self._steps.append((name, kind, change))

    def _preferred(self, name: str) -> Iterable[SlotKind]:
        """Kinds that serve: those it holds first, then those that nobody else holds, each time the smallest first."""

        def rank(kind: SlotKind) -> tuple[int, int, int]:
            if self._unplanned(name, kind) > 0:
                return 0, kind.gpus, kind.cpus
            return (1 if self._free[kind] > self._spoken_for[kind] else 2), kind.gpus, kind.cpus

        return sorted(self._kinds[name], key=rank)

    def _unplanned(self, name: str, kind: SlotKind) -> int:
        return max(self._granted[name].get(kind, 0) - self.plan[name][kind], 0)
