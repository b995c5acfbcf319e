"""A simple implementation of the division of slots of several kinds, as a reference for tests of `core.cluster.division`."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence

from hopyard_engine.core.cluster.division import Division, SlotKind, SlotRequest


def divide_plainly(slots: Mapping[SlotKind, int], wants: Sequence[SlotRequest]) -> Division:
    """Return what `divide` must return if not every slot serves every request."""
    handing = Handing(slots, wants)
    open_wants = list(wants)
    while open_wants:
        none = [want for want in open_wants if not handing.size(want)]
        lowest = none[0] if none else min(open_wants, key=handing.rank)
        if not handing.give(lowest):
            open_wants.remove(lowest)
    plan = {name: +kinds for name, kinds in handing.plan.items()}
    return Division({name: sum(kinds.values()) for name, kinds in plan.items()}, plan)


class Handing:
    """The state of a division: the `plan` so far and the free slots. Every method counts from scratch."""

    def __init__(self, slots: Mapping[SlotKind, int], wants: Sequence[SlotRequest]) -> None:
        self.plan: dict[str, Counter[SlotKind]] = {want.claim.name: Counter() for want in wants}
        self._free = Counter(slots)
        self._wants = {want.claim.name: want for want in wants}
        self._kinds = {want.claim.name: sorted(kind for kind in slots if want.takes(kind)) for want in wants}

    def rank(self, want: SlotRequest) -> tuple[float, float, str]:
        """Return what decides which request is served first: slots per unit of weight, the weight, the name."""
        return self.size(want) / want.claim.weight, want.claim.weight, want.claim.name

    def size(self, want: SlotRequest) -> int:
        """Return the number of slots in the plan of a request."""
        return sum(self.plan[want.claim.name].values())

    def give(self, want: SlotRequest) -> bool:
        """Add one gang to the plan and return True, or return False if the cap or the free slots do not allow it."""
        if self.size(want) + want.gang > want.claim.cap:
            return False
        plan, free = {name: Counter(kinds) for name, kinds in self.plan.items()}, Counter(self._free)
        if all(self._give_one(want) for _ in range(want.gang)):
            return True
        self.plan, self._free = plan, free
        return False

    def _give_one(self, want: SlotRequest) -> bool:
        """Add one slot to the plan of a request, moving other requests to other kinds of slots if necessary; return the success."""
        name = want.claim.name
        came: dict[SlotKind, tuple[SlotKind, str] | None] = dict.fromkeys(self._preferred(name))
        queue = deque(came)
        while queue:
            kind = queue.popleft()
            if self._free[kind] > 0:
                self._take(name, kind, came)
                return True
            for other in self._planned(kind):
                for instead in self._preferred(other):
                    if instead not in came:
                        came[instead] = (kind, other)
                        queue.append(instead)
        return False

    def _planned(self, kind: SlotKind) -> list[str]:
        return [name for name, kinds in self.plan.items() if kinds[kind] > 0]

    def _take(self, name: str, kind: SlotKind, came: Mapping[SlotKind, tuple[SlotKind, str] | None]) -> None:
        self._free[kind] -= 1
        step = came[kind]
        while step is not None:  # The request that had this kind moves.
            before, mover = step
            self.plan[mover][kind] += 1
            self.plan[mover][before] -= 1
            kind, step = before, came[before]
        self.plan[name][kind] += 1

    def _preferred(self, name: str) -> Iterable[SlotKind]:
        """Return the kinds that serve the request: first those that it has, then those that no other request has, each by size."""

        def rank(kind: SlotKind) -> tuple[int, int, int]:
            if self._unplanned(name, kind) > 0:
                return 0, kind.gpus, kind.cpus
            spoken_for = sum(self._unplanned(other, kind) for other in self._wants)
            return (1 if self._free[kind] > spoken_for else 2), kind.gpus, kind.cpus

        return sorted(self._kinds[name], key=rank)

    def _unplanned(self, name: str, kind: SlotKind) -> int:
        return max(self._wants[name].granted.get(kind, 0) - self.plan[name][kind], 0)
