"""Data of the plot `hops`: model hops of a search over partitioned data (Cerebro).

It shows which job trained on which partition on which slot and when, how slots spent their time, and how many bytes of models nodes
transferred and of data they store. A *visit* is one run of a job on one partition.
"""

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
    """How one slot spent the time from the first run on a partition in the search to the end of the plot.

    Attributes:
        slot: Id of the slot.
        partitions: Names of the partitions that jobs trained or were evaluated on here, in natural order.
        training: Seconds of training units.
        evaluating: Seconds of evaluations.
        hopping: Seconds from the placement of a run to the start of its training, for runs whose model came from another node or the
            store. The model is transferred and loaded in that time.
        starting: Seconds from the placement of a run to the start of its training, for all other runs. Processes start and import the
            program in that time.
        idle: The remaining seconds.
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
    """Data of the plot `hops`: the visits of a search over partitioned data. A visit is one run of a job on one partition.

    Attributes:
        slots: How each slot spent its time, in natural order of the slots' ids.
        visits: The visits, ordered by start. A visit whose `end` is None has not ended.
        time: Right end of the x axis, in seconds since the search began.
        best: Id of the job with the best result so far, whose path over the slots is drawn; empty: none.
        hops: Number of visits whose model came from another node or from the store.
        moved: Tuples (seconds since the search began, bytes from node to node, bytes from the store, bytes to the store), ordered by
            time. The bytes are totals of the models transferred until then.
        storage: The bytes that the replicas of the search's partitions use on nodes, compared with a full copy on each node.
    """

    slots: tuple[SlotUse, ...]
    visits: tuple[PlottedVisit, ...]
    time: float
    best: str
    hops: int
    moved: tuple[tuple[float, int, int, int], ...]
    storage: Storage


def gather(searches: Sequence[Search]) -> HopPlot:
    """Return the data of the plot `hops` for one search: its visits, which are runs of a job on one partition of the data.

    Args:
        searches: Exactly one search.

    Raises:
        InvalidInput: There are several searches, or the source of the search does not provide visits (`Search.visits` is None).
        NotFound: The source provides visits, but the search has no partitioned data, or there was no visit yet.
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
