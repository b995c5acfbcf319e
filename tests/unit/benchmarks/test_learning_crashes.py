"""Test of the default of `crash_after` on the recorded LunarLander agents (docs/pop.md)."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any, cast

from hopyard.policy import Cluster, CurvePoint, ExperimentView
from hopyard.traces import Trace, read_traces
from hopyard_policies.pop.kill_threshold import CRASH_BOUNDARIES, not_learning

TRACES = Path(__file__).parents[3] / "benchmarks" / "traces" / "lunarlander.jsonl.gz"
BOUNDARY = 4
THRESHOLD = -100.0


def crashes(trace: Trace, crash_after: int) -> bool:
    """Return whether the rule ends an agent that was above the threshold once, at a boundary before its end."""
    terms = ExperimentView(trace.metric, trace.mode, len(trace.metrics), kill_threshold=THRESHOLD)
    points = [CurvePoint(at, {trace.metric: value}, 1.0) for at, value in enumerate(trace.metrics, 1)]
    for position in range(BOUNDARY, len(points), BOUNDARY):
        seen: Any = SimpleNamespace(experiment=terms, curve=lambda _, end=position: points[:end])
        seen.ratings = MethodType(Cluster.ratings, seen)
        learned = max(trace.metrics[:position]) > THRESHOLD
        if learned and not_learning(cast(Cluster, seen), trace.job, crash_after):
            return True
    return False


def test_the_default_ends_agents_that_crash_and_none_that_reaches_the_target() -> None:
    # The halves and the targets are those of `benchmarks/policies.py`: a tenth of the half ends with the target or better.
    ordered = sorted(
        read_traces(TRACES), key=lambda trace: hashlib.sha256(f"lunarlander/{trace.job}".encode()).digest()
    )
    traces = ordered[: len(ordered) // 2]
    target = sorted(trace.metrics[-1] for trace in traces)[math.ceil(0.9 * len(traces)) - 1]
    good = [trace for trace in traces if max(trace.metrics) >= target]
    bad = [trace for trace in traces if max(trace.metrics) < target]
    assert (len(good), len(bad)) == (8, 22)
    assert [trace.job for trace in good if crashes(trace, CRASH_BOUNDARIES * BOUNDARY)] == []
    assert len([trace for trace in bad if crashes(trace, CRASH_BOUNDARIES * BOUNDARY)]) == 7
    # With one boundary the rule ends agents that reach the target later.
    assert [trace.job for trace in good if crashes(trace, BOUNDARY)] != []
