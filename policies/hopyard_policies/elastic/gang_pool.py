"""The idle slots by kind of host (`SlotView.hardware`), and the gangs that can be formed from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from hopyard.policy import Cluster, SlotView
from hopyard_policies.elastic.scaling import Scaling


class GangPool:
    """The idle slots in one up-call by kind of host, and the number of slots of each kind that will be idle soon.

    Gangs are taken from the pool in this up-call. Slots of suspending runs will be idle soon.

    Args:
        cluster: The view of the up-call.
        idle: Usable idle slots, ordered by id.
        kept: The ids of slots whose runs continue.
        room: The number of slots, idle now or soon, that starting jobs may use in total.
    """

    def __init__(self, cluster: Cluster, idle: Sequence[SlotView], kept: Collection[str], room: int) -> None:
        self._idle: dict[str, list[SlotView]] = {}
        for slot in idle:
            self._idle.setdefault(slot.hardware, []).append(slot)
        slots = cluster.slots.values()
        self._held = Counter(slot.hardware for slot in slots)
        free = Counter(slot.hardware for slot in slots if slot.id not in kept)
        # Slots of runs that are suspending become idle at the next boundary; a job for them waits until then.
        coming = max(min(sum(free.values()), room) - len(idle), 0)
        self._leaving = {kind: min(count - len(self._idle.get(kind, ())), coming) for kind, count in free.items()}

    @property
    def kinds(self) -> list[str]:
        """The kinds of host with slots that are idle or will be idle soon."""
        return sorted(self._leaving)

    def take(self, wanted: int, kinds: Mapping[str, Scaling], least: int) -> tuple[str, ...]:
        """Remove a gang of at most `wanted` slots of one kind from the idle slots, the largest possible, and return it.

        The result is empty if the idle slots of no kind suffice for an allowed size, or if some kind allows a larger gang, of at
        most `wanted` slots, as soon as its suspending runs have ended. If no kind of host has `least` slots, idle or busy, the gang
        consists of `least` idle slots of several kinds.

        Args:
            wanted: The maximum size of the gang.
            kinds: For each kind of host, the time of a unit by gang size and the allowed sizes.
            least: The size of the smallest permitted gang.

        Returns:
            The ids of the slots; empty: the job must wait.
        """
        now = {kind: kinds[kind].fitting(min(wanted, len(idle))) for kind, idle in self._idle.items() if idle}
        soon = (kinds[kind].fitting(min(wanted, self._soon(kind))) for kind in self._leaving)
        most = max(soon, default=0)
        if not most and wanted and max(self._held.values(), default=0) < least <= sum(map(len, self._idle.values())):
            every = sorted((slot for idle in self._idle.values() for slot in idle), key=lambda one: one.id)
            return self._gone(_taken(every, least))
        fit = [kind for kind, size in now.items() if size and size == most]
        if not fit:
            return ()
        kind = min(fit, key=lambda kind: self._idle[kind][0].id)
        return self._gone(_taken(self._idle[kind], most))

    def _soon(self, kind: str) -> int:
        return len(self._idle.get(kind, ())) + self._leaving[kind]

    def _gone(self, gang: tuple[str, ...]) -> tuple[str, ...]:
        taken = set(gang)
        self._idle = {kind: [slot for slot in idle if slot.id not in taken] for kind, idle in self._idle.items()}
        return gang


def kind_of(slots: Mapping[str, SlotView], gang: Sequence[str]) -> str | None:
    """Return the kind of host that all slots of a gang have; None: their kinds differ, or a slot does not exist any more.

    Args:
        slots: The present slots by id.
        gang: The ids of the slots of the gang.
    """
    kinds = {slots[name].hardware if name in slots else None for name in gang}
    return kinds.pop() if len(kinds) == 1 else None


def _taken(idle: list[SlotView], size: int) -> tuple[str, ...]:
    """Remove `size` slots from the idle ones, on as few nodes as possible; return their ids.

    Of the nodes with enough idle slots, the one with the fewest is used. If no node has enough, the nodes with the most idle slots
    come first. `idle` must have at least `size` slots.
    """
    if size == 1:
        return (idle.pop(0).id,)
    counts = Counter(slot.node for slot in idle)

    def rank(slot: SlotView) -> tuple[bool, int, str]:
        count = counts[slot.node]
        return count < size, count if count >= size else -count, slot.node

    chosen = sorted(idle, key=rank)[:size]
    for slot in chosen:
        idle.remove(slot)
    return tuple(slot.id for slot in chosen)
