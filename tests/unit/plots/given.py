"""Results in the format of `hopyard simulate --json`, from a small seeded simulation; they say nothing about real policies."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

TARGET = 0.9
HALVES = {"default": 1.0, "bandit": 0.5, "pop": 0.3}
"""By policy: from epoch 10 on, a job ends below (1 - this) times the best value so far; the default policy ends no job."""


def curve(rng: np.random.Generator, epochs: int) -> np.ndarray:
    """Return the accuracies of a job; a third of all jobs never learns."""
    noise = rng.normal(0, 0.008, epochs)
    if rng.random() < 0.33:
        return 0.1 + np.abs(noise)
    final, rate = rng.beta(6, 2) * 0.85 + 0.1, rng.uniform(0.02, 0.25)
    learnt: np.ndarray = np.clip(0.1 + (final - 0.1) * (1 - np.exp(-rate * np.arange(1, epochs + 1))) + noise, 0, 1)
    return learnt


def result(
    policy: str = "bandit", *, slots: int = 4, order_seed: int = 0, jobs: int = 60, epochs: int = 60, **more: Any
) -> dict[str, Any]:
    """Return the result of one simulated search."""
    rng = np.random.default_rng(7)
    configurations = [(curve(rng, epochs), rng.uniform(20, 60)) for _ in range(jobs)]
    rng = np.random.default_rng([order_seed, slots])
    order = rng.permutation(jobs)
    free = [(0.0, slot) for slot in range(slots)]
    curves, runs, reached, best, full = {}, [], None, 0.0, []
    for ordinal, which in enumerate(order, 1):
        start, slot = heapq.heappop(free)
        values, seconds = configurations[which]
        stop = epochs
        if policy != "default":
            low = np.flatnonzero(values[9:] < (1 - HALVES[policy]) * best)
            stop = 10 + int(low[0]) if len(low) else epochs
        crashed = rng.random() < 0.04
        stop = int(rng.integers(1, 20)) if crashed else stop
        times = start + 4.0 + seconds * np.arange(1, stop + 1)
        curves[str(ordinal)] = [[float(t), e, float(v)] for e, (t, v) in enumerate(zip(times, values, strict=False), 1)]
        hit = np.flatnonzero(values[:stop] >= TARGET)
        if len(hit):
            reached = min(times[hit[0]], reached or np.inf)
        best = max(best, float(values[:stop].max()))
        end = float(times[-1])
        reason = "FAILED" if crashed else "UNTIL" if stop == epochs else "TERMINATED"
        split = start + 4.0 + seconds * (stop // 2) if policy == "pop" and stop > 20 else None
        place = {"slot": f"node/{slot}", "job": str(ordinal)}
        if split is not None:
            runs.append({**place, "attempt": 1, "start": start, "end": split, "reason": "SUSPENDED"})
            runs.append({**place, "attempt": 2, "start": split + 2, "end": end, "reason": reason})
        else:
            runs.append({**place, "attempt": 1, "start": start, "end": end, "reason": reason})
        if reason == "UNTIL":
            full.append(end)
        heapq.heappush(free, (end, slot))
    last = max(run["end"] for run in runs)
    grow = [[last * k / 40, round(slots * k / 50), slots - round(slots * k / 50)] for k in range(40)]
    chances = {
        "confidences": [[last * k / 40, slots, [min(1.0, 0.02 * k * j) for j in range(4, 0, -1)]] for k in range(40)]
    }
    return {
        "policy": policy, "traces": ["traces/cifar.jsonl.gz"], "slots": slots, "order_seed": order_seed, "seed": 0,
        "target": TARGET, "time_to_target": None if reached is None else float(reached), "best": best, "time": last,
        "metric": "accuracy", "mode": "max", "jobs_at_R": [[0.0, 0], *([t, k] for k, t in enumerate(sorted(full), 1))],
        "pools": grow if policy == "pop" else [], "runs": runs, "curves": curves, **(chances if policy == "pop" else {}), **more,
    }  # fmt: skip
