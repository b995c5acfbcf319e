"""Tests of what benchmarks/live_policies.py computes from journals and learning curves."""

from __future__ import annotations

import argparse
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from live_policies import Load, load_of, terms, with_epochs

pytestmark = pytest.mark.quick


def test_reports_are_counted_up_to_the_one_that_reached_the_target() -> None:
    curve = [(1.0, 0.1), (2.0, None), (2.5, 0.9), (2.5, 0.2), (3.0, 0.95)]
    assert with_epochs({"time_to_target": 2.5, "curve": curve})["epochs_to_target"] == 4
    assert with_epochs({"time_to_target": None, "curve": curve})["epochs_to_target"] is None


def test_the_load_of_predictions_is_read_from_the_journal(tmp_path: Path) -> None:
    def asks(at: float, *tickets: str) -> tuple[str, dict[str, object]]:
        commands = [{"is": "Predict", "ticket": ticket, "job": "1"} for ticket in tickets]
        return "PolicyAnswered", {"at": at, "answer": {"number": 1, "commands": [*commands, {"is": "LabelJob"}]}}

    def answers(at: float, ticket: str, error: str = "") -> tuple[str, dict[str, object]]:
        return "Answered", {"at": at, "ticket": ticket, **({"error": error} if error else {})}

    records = [
        asks(10.0, "1.1", "1.2"),
        answers(10.5, "policy/1.1"),
        answers(10.6, "create/2"),
        asks(11.0, "2.1"),
        ("PolicyAnswered", {"at": 11.5, "answer": {"number": 3}}),
        answers(12.5, "policy/2.1"),
        answers(13.0, "policy/1.2", "it was killed"),
    ]
    database = tmp_path / "appstat.sqlite"
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("CREATE TABLE journal (stream, position, kind, payload)")
        rows = [("x", number, kind, json.dumps(event)) for number, (kind, event) in enumerate(records)]
        connection.executemany("INSERT INTO journal VALUES (?, ?, ?, ?)", rows)
    assert load_of(database, 4.0) == Load(asked=3, failed=1, seconds=1.0, cpu_seconds=4.0)


def test_terms_of_the_metric_are_numbers_with_known_names() -> None:
    assert terms("kill_threshold=0.15,max=1") == {"kill_threshold": 0.15, "max": 1.0}
    assert terms("") == {}
    with pytest.raises(argparse.ArgumentTypeError, match="found 'target', allowed are kill_threshold, min, max"):
        terms("target=1")
    with pytest.raises(argparse.ArgumentTypeError, match="min: needs a number, found 'x'"):
        terms("min=x")
