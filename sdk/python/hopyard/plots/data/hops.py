"""Models that hop between partitions of the data: who was where and when, what slots did, what moved, what is held."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hopyard._runtime.datasets.usage import Storage, storage
from hopyard.errors import NotFound
from hopyard.plots.data.groups import natural, need, one
from hopyard.plots.model import PartitionReplicas, PlottedVisit, Search


@dataclass(frozen=True, slots=True)
class SlotUse:
    """What a slot did, in seconds: from the first visit of all to the last.

    Attributes:
        slot: Which.
        partitions: What it trained or evaluated on, in order of name.
        training: Seconds of training units.
        evaluating: Seconds of evaluations.
        hopping: Seconds between the placing of a run and its beginning where its model hopped, and was loaded.
        starting: The same where it had not to: processes start, and programs are imported.
        idle: The rest.
    """

    slot: str
    partitions: tuple[str, ...]
    training: float
    evaluating: float
    hopping: float
    starting: float
    idle: float


@dataclass(frozen=True, slots=True)
class HopPlot:
    """A search over partitioned data.

    Attributes:
        slots: In the order of their names, with what each did.
        visits: In order of their start; those without an end go on.
        time: Where the plot ends.
        best: The job with the best result so far, whose way is shown; empty: none.
        hops: How many visits got their model from another node, or from the store.
        moved: (seconds, bytes of models from node to node, from the store, to the store) so far.
        storage: What nodes hold.
    """

    slots: tuple[SlotUse, ...]
    visits: tuple[PlottedVisit, ...]
    time: float
    best: str
    hops: int
    moved: tuple[tuple[float, int, int, int], ...]
    storage: Storage


def gather(searches: Sequence[Search]) -> HopPlot:
    """What was where, of one search.

    Raises:
        InvalidInput: There are several searches, or it does not tell its visits.
        NotFound: It names no partitioned data, or nothing has run on them yet.
    """
    search = one(searches, "hops")
    visits: tuple[PlottedVisit, ...] = need(search, "visits", "hops", "visits of partitioned data")
    held: tuple[PartitionReplicas, ...] = search.held or ()
    if not held:
        raise NotFound(f"{search.where}: it has no partitioned data; --kind gantt shows what ran where")
    if not visits:
        raise NotFound(f"{search.where}: nothing has run on its data yet")
    last = max(visit.end if visit.end is not None else visit.start for visit in visits)
    going_on = any(visit.end is None for visit in visits)
    time = max(last, search.time or 0.0) if going_on else last
    ordered = tuple(sorted(visits, key=lambda visit: (visit.start, natural(visit.slot))))
    slots = sorted({visit.slot for visit in visits}, key=natural)
    moved = tuple(search.moved or ())
    return HopPlot(
        slots=tuple(_use(slot, ordered, time) for slot in slots),
        visits=ordered,
        time=time,
        best=search.best_job or "",
        hops=sum(visit.got > 0 for visit in visits),
        moved=moved,
        storage=storage([(one.bytes, one.nodes) for one in held], {visit.node for visit in visits}),
    )


def _use(slot: str, visits: Sequence[PlottedVisit], time: float) -> SlotUse:
    own = [visit for visit in visits if visit.slot == slot]
    hopping: list[float] = []
    starting: list[float] = []
    training: list[float] = []
    evaluating: list[float] = []
    for visit in own:
        end = time if visit.end is None else visit.end
        began = end if visit.began is None else visit.began
        (hopping if visit.got else starting).append(began - visit.start)
        (evaluating if visit.evaluates else training).append(end - began)
    names = tuple(sorted({visit.partition for visit in own}, key=natural))
    sums = math.fsum(training), math.fsum(evaluating), math.fsum(hopping), math.fsum(starting)
    idle = max(time - visits[0].start - math.fsum(sums), 0.0)
    return SlotUse(slot, names, *sums, idle)
