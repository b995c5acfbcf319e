"""A search over partitioned data from a small simulation: a slot takes the next model that has not visited its partition."""

from __future__ import annotations

from collections.abc import Iterator

from hopyard.plots import PartitionReplicas, PlottedVisit, Search, SearchSource

MODEL = 3_200_000
"""Bytes of a model."""


def search(slots: int = 6, configurations: int = 10, epochs: int = 2, *, over: float | None = None) -> Search:
    """Return a search with as many partitions as slots; partition 1 is on two nodes. `over`: the time up to which it is known."""
    visits = tuple(_visits(slots, configurations, epochs))
    moved: list[tuple[float, int, int, int]] = []
    direct = 0
    for visit in sorted(visits, key=lambda visit: visit.start):
        if visit.got and visit.began is not None:
            direct += visit.got
            moved.append((visit.began, direct, 0, 0))
    if over is not None:
        visits = tuple(_cut(visit, over) for visit in visits if visit.start < over)
        moved = [point for point in moved if point[0] < over]
    held = [
        PartitionReplicas(f"{split}/{number}", size, tuple({f"n{number}", "n0"} if number == 1 else {f"n{number}"}))
        for split, size in (("train", 48_000_000), ("eval", 8_000_000))
        for number in range(slots)
    ]
    return Search(
        where="experiment hopping",
        source=SearchSource.EXPERIMENT,
        policy="mop",
        metric="accuracy",
        mode="max",
        best_job="3",
        time=over if over is not None else max(visit.end or 0.0 for visit in visits),
        visits=visits,
        held=tuple(held),
        moved=tuple(moved),
    )


def _visits(slots: int, configurations: int, epochs: int) -> Iterator[PlottedVisit]:
    free = [2.0] * slots
    ready = [2.0] * configurations
    where = [-1] * configurations
    left = [set(range(slots)) for _ in range(configurations)]
    parts = [set[int]() for _ in range(configurations)]
    epoch = [1] * configurations
    lost = False
    while any(left) or any(parts):
        # The first possible visit starts; of several, the one whose model has most partitions left.
        start, _, model, slot = min(
            (max(free[slot], ready[model]), -len(left[model]), model, slot)
            for model in range(configurations)
            for slot in (parts[model] or left[model])
        )
        evaluates = bool(parts[model])
        hop = 0.6 if where[model] not in (-1, slot) else 0.15
        began = start + hop
        seconds = 1.2 if evaluates else 4.0 + model % 4 * 1.5
        broken = not lost and not evaluates and start > 60
        end = began + seconds * (0.5 if broken else 1.0)
        got = MODEL if where[model] not in (-1, slot) else 0
        name = f"{'eval' if evaluates else 'train'}/{slot}"
        reason = "LOST" if broken else "UNTIL"
        yield PlottedVisit(f"n{slot}/0", f"n{slot}", str(model + 1), name, evaluates, start, began, end, reason, got)
        free[slot] = ready[model] = end + 0.1
        if broken:
            lost = True
            continue
        where[model] = slot
        (parts if evaluates else left)[model].discard(slot)
        if not evaluates and not left[model]:
            parts[model] = {0, slots // 2}
        if evaluates and not parts[model] and epoch[model] < epochs:
            epoch[model] += 1
            left[model] = set(range(slots))


def _cut(visit: PlottedVisit, over: float) -> PlottedVisit:
    """Return a visit as it is known at the time `over`."""
    began = visit.began if visit.began is not None and visit.began < over else None
    if visit.end is None or visit.end < over:
        return visit
    got = visit.got if began is not None else 0
    return PlottedVisit(
        visit.slot, visit.node, visit.job, visit.partition, visit.evaluates, visit.start, began, None, None, got
    )
