"""What a journal and the agents' own records say of units of training: who trained what, where, and what became of it.

It knows nothing of the policy: what it is told are the commands that were sent and the messages that came back.
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
        key: Its channel.
        node: Where it was to run.
        mode: Train or evaluate.
        start: The position that it began at.
        partition: What it was to read.
        began: The number of the event after which it was sent.
        ended: That of its last word; 0: none came.
        up: Whether it said that it trains.
        fetched: Bytes that its agent had to get for it.
        saved: Whether it left a snapshot of its unit, or of those of its gang.
        ranks: How many there are.
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
    """All runs, in the order in which they were sent."""
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
    """By job, the partitions that its weights have seen, in order: each unit that was saved, on what it was saved upon."""
    found: dict[str, list[str]] = defaultdict(list)
    for unit in units:
        if unit.mode is RunMode.TRAIN and unit.saved:
            seen = found[unit.key.job]
            assert len(seen) >= unit.start, f"job {unit.key.job} began at {unit.start} and had seen {seen}"
            those = [each.partition for each in units if each.key[:3] == unit.key[:3]]
            found[unit.key.job] = [*seen[: unit.start], *those]
    return dict(found)


def check_apart(units: Sequence[Unit], lost: Sequence[str]) -> None:
    """No job was sent to two places at once, but to those of a gang, and no slot two units, but after the death of a node (`lost`).

    A run whose last word never came counts as over when its job is sent elsewhere: nobody takes its word any more.
    """
    last: dict[tuple[str, str], Unit] = {}
    for unit in units:
        for owner in (("job", unit.key.job), ("node", unit.node)):
            before = last.get(owner)
            if before is not None and before.node not in lost and before.key[:3] != unit.key[:3]:
                assert 0 < before.ended <= unit.began, (before, unit)
            last[owner] = unit


def check_carried_out(units: Sequence[Unit], folders: dict[str, Path], lost: Sequence[str]) -> None:
    """What agents of these folders have started is what was sent to them, each once; and what said that it trains was started."""
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
    """An experiment's events."""
    async with opened(server, None, experiment, "a test") as source:
        return [event async for _, event in source.read()]
