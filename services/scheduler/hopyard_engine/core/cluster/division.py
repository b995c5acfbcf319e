"""Division of slots of different kinds, and of slots that are needed in gangs.

If all slots serve all streams and no stream needs gangs, this is `fair_share.water_fill`. Otherwise slots are given, as there, to the
claim that has the lowest level with another gang, but

- in whole gangs: a stream whose jobs need two slots at once gets 0, 2, 4, ... slots, since one slot would be kept from the others for
  nothing. So no two streams can wait forever for slots that the other one holds;
- of a suitable kind: a stream that has a slot moves to another kind if that lets another stream get one (augmenting paths), so slots
  that few streams can use are not taken by streams that can use any. For single slots the result is the weighted max-min fair
  division.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hopyard_engine.core.cluster.fair_share import Claim, water_fill


class SlotKind(NamedTuple):
    """The hardware of a slot, or the hardware that a job needs of each slot: CPU threads and GPUs.

    `wished` are the names of the picky wants (`Want.picky`) that can use the slot.
    """

    cpus: int = 1
    gpus: int = 0
    wished: frozenset[str] = frozenset()

    def serves(self, need: SlotKind) -> bool:
        """Returns whether a slot of this kind has at least the hardware `need`."""
        return self.cpus >= need.cpus and self.gpus >= need.gpus

    def __str__(self) -> str:
        cpus = f"{self.cpus} CPU thread{'s' if self.cpus != 1 else ''}"
        return f"{cpus} and {self.gpus or 'no'} GPU{'s' if self.gpus > 1 else ''}"


ANY = SlotKind()


@dataclass(frozen=True, slots=True)
class Want:
    """The request of one stream and the slots that it holds.

    Attributes:
        claim: Its weight and its maximum number of slots.
        gang: Number of slots that it takes at once (>= 1).
        need: Hardware that each slot must have.
        granted: Slots that it holds, by kind. It keeps them if that takes nothing from other streams.
        picky: Whether it can use only slots whose kind names it in `wished`.
    """

    claim: Claim
    gang: int = 1
    need: SlotKind = ANY
    granted: Mapping[SlotKind, int] = field(default_factory=dict)
    picky: bool = False

    def takes(self, kind: SlotKind) -> bool:
        """Returns whether it can use slots of a kind."""
        return kind.serves(self.need) and (not self.picky or self.claim.name in kind.wished)


@dataclass(frozen=True, slots=True)
class Division:
    """The result of a division: `shares` has the number of slots of each stream, `plan` the number of each kind.

    `plan` is None if the kinds do not matter, because every slot serves every stream.
    """

    shares: dict[str, int]
    plan: dict[str, Counter[SlotKind]] | None

    def room(self, name: str, kind: SlotKind, held: int) -> bool:
        """Returns whether a stream that holds `held` slots of a kind may get another one of that kind."""
        return self.plan is None or held < self.plan[name][kind]

    def surplus(self, name: str, kind: SlotKind, held: int) -> int:
        """Returns how many of the `held` slots of a kind a stream should exchange for another kind."""
        return 0 if self.plan is None else max(held - self.plan[name][kind], 0)


def divide(slots: Mapping[SlotKind, int], wants: Sequence[Want]) -> Division:
    """Divides slots, given as a number for each kind. At equal levels, earlier wants are served first."""
    everything_serves = all(want.takes(kind) for kind in slots for want in wants)
    if everything_serves and all(want.gang == 1 for want in wants):
        return Division(water_fill(sum(slots.values()), [want.claim for want in wants]), None)
    handing = _Handing(slots, wants)
    heap = [(handing.level(want), order) for order, want in enumerate(wants)]
    heapq.heapify(heap)
    while heap:  # The level of a want changes only when it gets slots.
        order = heap[0][1]
        if handing.give(wants[order]):
            heapq.heapreplace(heap, (handing.level(wants[order]), order))
        else:
            heapq.heappop(heap)
    plan = {name: +kinds for name, kinds in handing.plan.items()}
    return Division({name: sum(kinds.values()) for name, kinds in plan.items()}, plan)


class _Handing:
    """A division in progress: the `plan` so far and the free slots.

    It maintains the plan's size for each want, and the number of slots of each kind that are held but not planned yet, incrementally:
    a cluster may have thousands of slots and hundreds of wants.
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
        """Returns the number of slots per unit of weight that a want would have with another gang."""
        return (self._sizes[want.claim.name] + want.gang) / want.claim.weight

    def give(self, want: Want) -> bool:
        """Gives a want a gang of slots.

        Returns False and changes nothing if that exceeds its cap or there are too few suitable slots.
        """
        if self._sizes[want.claim.name] + want.gang > want.claim.cap:
            return False
        self._steps.clear()
        if all(self._give_one(want) for _ in range(want.gang)):
            return True
        for name, kind, change in reversed(self._steps.copy()):
            self._change(name, kind, -change)
        return False

    def _give_one(self, want: Want) -> bool:
        """Gives a want a free suitable slot, if necessary by moving other wants to other kinds. Returns False if there is none."""
        name = want.claim.name
        came: dict[SlotKind, tuple[SlotKind, str] | None] = dict.fromkeys(self._preferred(name))
        queue = deque(came)
        for kind in came:  # Usually a suitable slot is free, and no want must move.
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
        while step is not None:  # The want with a slot of the previous kind moves to this kind.
            before, mover = step
            self._change(mover, before, -1)
            self._change(mover, kind, 1)
            kind, step = before, came[before]
        self._change(name, kind, 1)

    def _change(self, name: str, kind: SlotKind, change: int) -> None:
        """Adds one slot of a kind (1) to a want's plan, or removes one (-1)."""
        planned = self.plan[name]
        before = self._unplanned(name, kind)
        planned[kind] += change
        self._sizes[name] += change
        self._free[kind] -= change
        self._spoken_for[kind] += self._unplanned(name, kind) - before
        self._steps.append((name, kind, change))

    def _preferred(self, name: str) -> Iterable[SlotKind]:
        """Returns the suitable kinds in order of preference, small slots first within each group.

        The groups are kinds that the want holds, kinds with slots that nobody holds, and all others.
        """

        def rank(kind: SlotKind) -> tuple[int, int, int]:
            if self._unplanned(name, kind) > 0:
                return 0, kind.gpus, kind.cpus
            return (1 if self._free[kind] > self._spoken_for[kind] else 2), kind.gpus, kind.cpus

        return sorted(self._kinds[name], key=rank)

    def _unplanned(self, name: str, kind: SlotKind) -> int:
        return max(self._granted[name].get(kind, 0) - self.plan[name][kind], 0)
