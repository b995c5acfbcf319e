"""Reads the units of training from a journal and from the agents' records: what was trained where, and with which result.

It does not know the policy: it reads only the commands that were sent and the messages that were received.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hopyard.policy.vocabulary import RunKey, RunMode
from hopyard_engine.core import Core
from hopyard_engine.core.effects import Send, Start
from hopyard_engine.core.events import Ended, Event, RunMessage, SnapshotTaken, Started
from hopyard_tools.commands.journal_source import opened


@dataclass(slots=True)
class Unit:
    """A run of one unit; or one rank of a gang, which trains one of several units at once.

    Attributes:
        key: The channel of the run.
        node: The node that received the command.
        mode: TRAIN or EVALUATE.
        start: The position at which it began.
        partition: The partition that it reads.
        began: The number of the event after which the start command was sent.
        ended: The number of the event of its end; 0: it has not ended.
        up: Whether it reported that it trains.
        fetched: Bytes that its agent had to fetch for it.
        saved: Whether it made a snapshot of its unit, or of the units of its gang.
        ranks: The number of its ranks.
    """

    key: RunKey
    node: str
    mode: RunMode
    start: int
    partition: str
    began: int
    ended: int = 0
    up: bool = False
    fetched: int = 0
    saved: bool = False
    ranks: int = 1


def units_of(events: Sequence[Event]) -> list[Unit]:
    """Return all runs, in the order in which their start commands were sent."""
    core, units = Core(), dict[RunKey, Unit]()
    for number, event in enumerate(events, 1):
        for effect in core.restore(event):  # type: ignore[arg-type]
            if isinstance(effect, Send) and isinstance(effect.body, Start):
                start = effect.body
                position = start.snapshot.position if start.snapshot is not None else 0
                unit = Unit(effect.run, effect.node, start.mode, position, start.input, number)
                unit.ranks = len(start.rank_nodes)
                units[effect.run] = unit
        if isinstance(event, RunMessage):
            unit = units[RunKey(event.stream, event.job, event.attempt, event.rank)]
            match event.body:
                case Started(fetched=fetched):
                    unit.up, unit.fetched = True, fetched
                case SnapshotTaken(snapshot) | Ended(snapshot=snapshot):
                    unit.saved = unit.saved or (snapshot is not None and snapshot.position == unit.start + unit.ranks)
                    unit.ended = number if isinstance(event.body, Ended) else unit.ended
                case _:
                    pass
    return list(units.values())


def histories(units: Sequence[Unit]) -> dict[str, list[str]]:
    """Return by job the partitions that its weights were trained on, in order: those of each saved unit and of the units before it."""
    found: dict[str, list[str]] = defaultdict(list)
    for unit in units:
        if unit.mode is RunMode.TRAIN and unit.saved:
            seen = found[unit.key.job]
            assert len(seen) >= unit.start, f"job {unit.key.job} began at {unit.start} and had seen {seen}"
            those = [each.partition for each in units if each.key[:3] == unit.key[:3]]
            found[unit.key.job] = [*seen[: unit.start], *those]
    return dict(found)


def check_apart(units: Sequence[Unit], lost: Sequence[str]) -> None:
    """Check that no job ran in two places at once, except as a gang, and that no slot had two units; except after a loss in `lost`.

    A run that never reported its end counts as ended when its job is sent elsewhere: its later messages are refused.
    """
    last: dict[tuple[str, str], Unit] = {}
    for unit in units:
        for owner in (("job", unit.key.job), ("node", unit.node)):
            before = last.get(owner)
            if before is not None and before.node not in lost and before.key[:3] != unit.key[:3]:
                assert 0 < before.ended <= unit.began, (before, unit)
            last[owner] = unit


def check_carried_out(units: Sequence[Unit], folders: dict[str, Path], lost: Sequence[str]) -> None:
    """Check that agents started exactly the runs that were sent to them, once each, and that each run that trains was started."""
    wanted: dict[str, set[RunKey]] = defaultdict(set)
    for unit in units:
        wanted[unit.node].add(unit.key)
    for node, folder in folders.items():
        lines = (folder / "logs" / "commands.jsonl").read_text().splitlines()
        started = Counter(RunKey(*line["run"]) for line in map(json.loads, lines) if line["kind"] == "start")
        assert set(started.values()) <= {1}, started
        own = {key for key in started if key.stream == units[0].key.stream}
        assert own <= wanted[node]
        assert {unit.key for unit in units if unit.node == node and unit.up} <= own
        if node not in lost:
            assert own == wanted[node]


async def journal(server: str, experiment: str) -> list[Event]:
    """Return an experiment's events."""
    async with opened(server, None, experiment, "a test") as source:
        return [event async for _, event in source.read()]
