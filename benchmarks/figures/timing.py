"""Reads times from the journal of an experiment and from the reports of `timed` trainers."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from hopyard.client.types import Statistic

TIMED: Final = Path(__file__).parent / "timed"
"""Code folder of the trainers that report when they train."""


def timed_spec(jobs: int, iterations: int, pace: float, *, uneven: bool = False, **changes: Any) -> Mapping[str, Any]:
    """Return an experiment with iterations of `pace` seconds. Jobs are saved only when they leave a slot. `changes` replace fields."""
    return {
        "name": "timed",
        "trainer": "train.py:Timed",
        "metric": {"name": "gap", "mode": "min"},
        "space": {"x": {"uniform": [0.0, 1.0]}, "pace": {"constant": pace}, "uneven": {"constant": uneven}},
        "stop": {"jobs": jobs, "max_iterations": iterations},
        "snapshot": {"every": 1_000_000, "keep_best": 0},
    } | changes


def journal(database: Path) -> Iterator[tuple[float, str, dict[str, Any]]]:
    """Yield the records of all streams in AppStat's database: time in seconds since the Unix epoch, kind, and event."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        for kind, payload in connection.execute("SELECT kind, payload FROM journal ORDER BY stream, position"):
            event = json.loads(payload)
            yield event["at"], kind, event


def first_trained(statistics: Sequence[Statistic]) -> dict[tuple[str, int], float]:
    """Return when the first iteration of each run began, in seconds since the Unix epoch, by job and attempt."""
    found: dict[tuple[str, int], float] = {}
    for one in statistics:
        key, began = (one.job, one.attempt), one.report.metrics["began"]
        found[key] = min(began, found.get(key, began))
    return found


def started(database: Path) -> dict[tuple[str, int], float]:
    """Return when the policy decided to start each run, in seconds since the Unix epoch, by job and attempt."""
    found: dict[tuple[str, int], float] = {}
    attempts: dict[str, int] = {}
    for at, kind, event in journal(database):
        if kind == "PolicyAnswered":
            for command in event["answer"].get("commands", ()):
                if command["is"] == "StartJob":
                    job = command["job"]
                    attempts[job] = attempts.get(job, 0) + 1
                    found[job, attempts[job]] = at
    return found


def suspensions(database: Path) -> tuple[dict[int, float], dict[int, float], dict[int, float]]:
    """Return the times of the suspensions of a job that is suspended after each iteration, in seconds since the Unix epoch, by attempt.

    Returns:
        When the policy decided to suspend the run, when the run had left its slot, and when its state was stored.
    """
    decided: dict[int, float] = {}
    free: dict[int, float] = {}
    stored: dict[int, float] = {}
    attempt = 0
    for at, kind, event in journal(database):
        if kind == "PolicyAnswered":
            answer = event["answer"]
            attempt += sum(command["is"] == "StartJob" for command in answer.get("commands", ()))
            if (answer.get("decision") or {}).get("kind") == "SUSPEND":
                decided[attempt] = at
        elif kind == "RunMessage" and event["body"]["is"] == "Ended":
            free[event["attempt"]] = at
        elif kind == "RunMessage" and event["body"]["is"] == "SnapshotStored":
            stored.setdefault(event["body"]["position"], at)
    return decided, free, stored


def percentile(values: Sequence[float], part: float) -> float:
    """Return the value below which the part `part` (0 to 1) of the values lies."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]
