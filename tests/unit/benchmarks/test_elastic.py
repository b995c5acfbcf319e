"""Tests of the benchmark of elastic jobs: they use fewer slot hours than wide gangs, and end sooner than narrow ones."""

from __future__ import annotations

from elastic import measure, table


def test_elastic_jobs_beside_fixed_ones() -> None:
    rows = {row["way"]: row for row in measure([32], 16, 1)}
    elastic = rows["elastic"]
    best = min((row for way, row in rows.items() if way != "elastic"), key=lambda row: row["time"])
    assert elastic["time"] < 1.1 * best["time"]
    assert elastic["slot_hours"] < best["slot_hours"]
    assert elastic["time"] < 0.7 * rows["always on 1"]["time"]
    assert "| 32 | elastic | - |" in table(list(rows.values()))
