"""Division of slots of different kinds, and of slots that are needed in gangs.

The request of a stream is its claim. If all slots serve all streams and no stream needs gangs, the division is that of
`fair_share.water_fill`. Otherwise one gang of slots at a time is given to the first claim by `fair_share.rank`: the one with the lowest
level, which is its number of slots per weight. In contrast to `water_fill`, slots are given

- in whole gangs: a stream whose jobs need two slots at once gets 0, 2, 4, ... slots, since it could not use a single one. So two
  streams cannot wait forever for slots that are granted to the other stream;
- of a suitable kind: a stream that has a slot moves to a slot of another kind if that lets another stream get one (augmenting paths).
  So slots that few streams can use are not taken by streams that can use any slot. For single slots the result is the weighted max-min
  fair division.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hopyard_engine.core.cluster.fair_share import Claim, Rank, rank, water_fill


class SlotKind(NamedTuple):
    """The hardware of a slot, or the minimum hardware that a stream needs of each slot.

    Attributes:
        cpus: Number of CPU threads.
        gpus: Number of GPUs.
        eligible_streams: Names of the streams with node restrictions (`SlotRequest.node_restricted`) that can use the slot. Slots of
            different nodes may have different kinds for this reason.
    """

    cpus: int = 1
    gpus: int = 0
    eligible_streams: frozenset[str] = frozenset()

    def serves(self, need: SlotKind) -> bool:
        """Return whether a slot of this kind has at least the hardware `need`."""
        return self.cpus >= need.cpus and self.gpus >= need.gpus

    def __str__(self) -> str:
        cpus = f"{self.cpus} CPU thread{'s' if self.cpus != 1 else ''}"
        return f"{cpus} and {self.gpus or 'no'} GPU{'s' if self.gpus > 1 else ''}"


ANY = SlotKind()


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """The request of one stream and the slots that it has now.

    Attributes:
        claim: Weight and maximum number of slots of the stream.
        gang: Number of slots that the stream takes at once (>= 1).
        need: Hardware that each slot must have.
        granted: Number of slots that are granted to the stream, by kind. The division prefers these kinds for the stream if no other
            stream loses by it.
        node_restricted: Whether the stream has a node restriction. Then it can use only slots whose kind names it in
            `SlotKind.eligible_streams`.
    """

    claim: Claim
    gang: int = 1
    need: SlotKind = ANY
    granted: Mapping[SlotKind, int] = field(default_factory=dict)
    node_restricted: bool = False

    def takes(self, kind: SlotKind) -> bool:
        """Return whether the stream can use slots of this kind."""
        return kind.serves(self.need) and (not self.node_restricted or self.claim.name in kind.eligible_streams)


@dataclass(frozen=True, slots=True)
class Division:
    """The result of a division.

    Attributes:
        shares: Number of slots of each stream.
        plan: Number of slots of each kind for each stream; None: kinds do not matter, because every slot serves every stream.
    """

    shares: dict[str, int]
    plan: dict[str, Counter[SlotKind]] | None

    def room(self, name: str, kind: SlotKind, held: int) -> bool:
        """Return whether the stream with the id `name` may get another slot of a kind.

        `held` is the number of slots of this kind that are granted to the stream. Always True if kinds do not matter (`plan` is None).
        """
        return self.plan is None or held < self.plan[name][kind]

    def surplus(self, name: str, kind: SlotKind, held: int) -> int:
        """Return how many slots of a kind the stream with the id `name` should exchange for slots of another kind.

        `held` is the number of slots of this kind that are granted to the stream. Always 0 if kinds do not matter (`plan` is None).
        """
        return 0 if self.plan is None else max(held - self.plan[name][kind], 0)


def divide(slots: Mapping[SlotKind, int], wants: Sequence[SlotRequest]) -> Division:
    """Divide slots between streams.

    Args:
        slots: Number of slots of each kind.
        wants: The requests, in the order of their turns: if not each can get a gang, the first ones get one.

    Returns:
        The division. Its shares contain each stream that makes a request, with 0 if it gets no slot.
    """
    everything_serves = all(want.takes(kind) for kind in slots for want in wants)
    if everything_serves and all(want.gang == 1 for want in wants):
        return Division(water_fill(sum(slots.values()), [want.claim for want in wants]), None)
    handing = _DivisionInProgress(slots, wants)
    heap = [(handing.rank(want, turn), turn) for turn, want in enumerate(wants)]
    heapq.heapify(heap)
    while heap:  # The rank of a want changes only when it gets slots.
        turn = heap[0][1]
        if handing.give(wants[turn]):
            heapq.heapreplace(heap, (handing.rank(wants[turn], turn), turn))
        else:
            heapq.heappop(heap)
    plan = {name: +kinds for name, kinds in handing.plan.items()}
    return Division({name: sum(kinds.values()) for name, kinds in plan.items()}, plan)


class _DivisionInProgress:
    """A division in progress: the plan so far and the free slots.

    The size of the plan of each stream, and the number of slots of each kind that are granted and not planned yet, are maintained
    incrementally, because a cluster may have thousands of slots and hundreds of streams.

    Args:
        slots: Number of slots of each kind.
        wants: The requests.

    Attributes:
        plan: Number of slots of each kind that each stream gets.
    """

    def __init__(self, slots: Mapping[SlotKind, int], wants: Sequence[SlotRequest]) -> None:
        self.plan: dict[str, Counter[SlotKind]] = {want.claim.name: Counter() for want in wants}
        self._free = Counter(slots)
        self._granted = {want.claim.name: want.granted for want in wants}
        self._sizes = dict.fromkeys(self.plan, 0)
        self._kinds = {want.claim.name: [kind for kind in slots if want.takes(kind)] for want in wants}
        self._spoken_for = {kind: sum(want.granted.get(kind, 0) for want in wants) for kind in slots}
        self._steps: list[tuple[str, SlotKind, int]] = []

    def rank(self, want: SlotRequest, turn: int) -> Rank:
        """Return the rank of the request `want` for another gang; `turn` is its place in the order of turns."""
        return rank(want.claim, self._sizes[want.claim.name], turn)

    def give(self, want: SlotRequest) -> bool:
        """Add a gang of slots to the plan of the stream that makes the request `want`.

        Returns:
            Whether the slots were added. False if they would exceed the stream's maximum, or there are too few suitable
            slots. Then nothing has changed.
        """
        if self._sizes[want.claim.name] + want.gang > want.claim.cap:
            return False
        self._steps.clear()
        if all(self._give_one(want) for _ in range(want.gang)):
            return True
        for name, kind, change in reversed(self._steps.copy()):
            self._change(name, kind, -change)
        return False

    def _give_one(self, want: SlotRequest) -> bool:
        """Add one suitable slot to the plan of the stream that makes the request `want`.

        If necessary, other streams move to slots of other kinds (breadth-first search).

        Returns:
            Whether the slot was added. False if there is no suitable slot. Then nothing has changed.
        """
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
        """Add one slot of a kind to the plan of the stream with the id `name` (`change` 1), or remove one (`change` -1)."""
        planned = self.plan[name]
        before = self._unplanned(name, kind)
        planned[kind] += change
        self._sizes[name] += change
        self._free[kind] -= change
        self._spoken_for[kind] += self._unplanned(name, kind) - before
        self._steps.append((name, kind, change))

    def _preferred(self, name: str) -> Iterable[SlotKind]:
        """Return the kinds of slots that the stream with the id `name` can use, in order of preference.

        First come kinds of which the stream has granted slots that are not planned yet, then kinds with slots that are granted to
        nobody, then all others. Within each of these groups, small slots come first.
        """

        def rank(kind: SlotKind) -> tuple[int, int, int]:
            if self._unplanned(name, kind) > 0:
                return 0, kind.gpus, kind.cpus
            return (1 if self._free[kind] > self._spoken_for[kind] else 2), kind.gpus, kind.cpus

        return sorted(self._kinds[name], key=rank)

    def _unplanned(self, name: str, kind: SlotKind) -> int:
        return max(self._granted[name].get(kind, 0) - self.plan[name][kind], 0)
