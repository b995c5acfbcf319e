"""Between table rows and plain values."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from typing import Any

from hopyard.policy.vocabulary import Report
from hopyard_appstat.records import ExperimentRow, JobRow, StatisticRecord


def metrics_to_json(metrics: Mapping[str, float]) -> str:
    """Metrics as strict JSON, their names sorted; what is not finite becomes a string."""
    written = (
        f"{_quoted(name)}:{float(value)!r}" if math.isfinite(value) else f'{_quoted(name)}:"{_word(value)}"'
        for name, value in sorted(metrics.items())
    )
    return f"{{{','.join(written)}}}"


def metrics_from_json(text: str) -> dict[str, float]:
    """Metrics back, bit for bit but for the payload of a NaN."""
    return {name: float(value) for name, value in json.loads(text).items()}


def statistic_to_row(statistic: StatisticRecord) -> dict[str, Any]:
    """A statistic as the columns of its table."""
    report = statistic.report
    in_force = statistic.in_force
    return {
        "experiment": statistic.experiment,
        "job": statistic.job,
        "position": report.position,
        "part": report.part,
        "attempt": statistic.attempt,
        "metrics": metrics_to_json(report.metrics),
        "seconds": report.seconds,
        "at": statistic.at,
        "examples": report.examples,
        "at_until": report.at_until,
        "finished": report.finished,
        "in_force": None if in_force is None else json.dumps(in_force, separators=(",", ":"), ensure_ascii=False),
    }


def statistic_from_row(row: Mapping[Any, Any]) -> StatisticRecord:
    """A statistic from the columns of its table."""
    report = Report(
        position=row["position"],
        metrics=metrics_from_json(row["metrics"]),
        seconds=row["seconds"],
        part=row["part"],
        examples=row["examples"],
        at_until=row["at_until"],
        finished=row["finished"],
    )
    in_force = None if row["in_force"] is None else json.loads(row["in_force"])
    return StatisticRecord(row["experiment"], row["job"], row["attempt"], report, row["at"], in_force)


def experiment_from_row(row: Mapping[Any, Any]) -> ExperimentRow:
    """An experiment from the columns of its table."""
    return ExperimentRow(**{name: row[name] for name in ExperimentRow.__slots__})


def job_from_row(row: Mapping[Any, Any]) -> JobRow:
    """A job from the columns of its table."""
    return JobRow(**{name: row[name] for name in JobRow.__slots__})


@functools.lru_cache(1024)
def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _word(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
