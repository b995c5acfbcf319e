"""Tests of the log of the commands that agents of a node have executed."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from hopyard.v1 import common_pb2
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard_nodeagent.runs.command_log import CommandRecord

pytestmark = pytest.mark.quick


def command(sequence: int) -> wire.RunCommand:
    run = common_pb2.RunRef(experiment="e", job="j", attempt=2)
    return wire.RunCommand(run=run, sequence=sequence, epoch=3, kill=wire.KillRun())


def test_each_command_is_a_line_and_a_new_life_appends(tmp_path: Path) -> None:
    path = tmp_path / "commands.jsonl"
    for sequence in (1, 2):
        CommandRecord(path, clock=lambda: 7.0).add(command(sequence))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0] == {"at": 7.0, "run": ["e", "j", 2, 0], "sequence": 1, "kind": "kill", "epoch": 3}
    assert [line["sequence"] for line in lines] == [1, 2]


def test_a_long_record_becomes_the_older_one(tmp_path: Path) -> None:
    path = tmp_path / "commands.jsonl"
    record = CommandRecord(path, max_bytes=150)
    for sequence in range(1, 6):
        record.add(command(sequence))
    older = (tmp_path / "commands.jsonl.1").read_text().splitlines()
    assert [json.loads(line)["sequence"] for line in [*older, *path.read_text().splitlines()]] == [3, 4, 5]


def test_a_disk_that_takes_no_more_costs_the_record_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        CommandRecord(tmp_path / "no such folder" / "commands.jsonl").add(command(1))
    assert "command 1 is not recorded" in caplog.text
