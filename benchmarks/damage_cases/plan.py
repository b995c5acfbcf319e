"""Draws the cases of a run from its seed."""

from __future__ import annotations

import enum
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from damage_cases.cluster import Way


class End(enum.Enum):
    """How the cluster ended in the middle of its training.

    KILLED: all processes at once, with SIGKILL. STOPPED: in order, after one of the two experiments was paused.
    """

    KILLED = "killed"
    STOPPED = "stopped"


FILES: Final = (
    "database",
    "journal file",
    "blob",
    "only blob",
    "only code",
    "snapshot",
    "snapshot folder",
    "only snapshot",
    "bundle",
    "bundle folder",
    "agent id",
    "agent cluster",
    "store cluster",
)
"""Kinds of files and folders. "only ..." removes the copy of the agent, so that the damaged one in the store is the only one; "only
snapshot" removes that in the store."""

FILE_DAMAGES: Final = ("empty", "missing", "truncated", "foreign", "link")

ROWS: Final = (
    "journal",
    "journal of an ended experiment",
    "journal of the cluster",
    "statistics",
    "statistics of an ended experiment",
    "jobs",
    "experiments",
)
"""Kinds of rows of the database."""

ROW_DAMAGES: Final = ("removed", "swapped", "doubled", "changed")

FLIPS: Final = ("database", "journal", "rows", "blob", "snapshot", "bundle", "agent folder", "only blob")
"""What a bit is flipped in: bytes of files, or with "journal" and "rows" the values of rows."""

RUNNING_EVERY: Final = 4
"""One of this number of bit flips happens while the cluster runs, before a training process is killed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One case.

    Attributes:
        number: Number of the case in its run, from 1.
        where: What is damaged: of FILES, ROWS or FLIPS.
        damage: How: of FILE_DAMAGES or ROW_DAMAGES, or "flip".
        way: How the cluster is started after the damage.
        end: How it ended before.
        running: Whether the damage happens while it runs; False: before its start.
        chance: Random numbers from 0 to below 1, which choose the file or row, and the place in it.
    """

    number: int
    where: str
    damage: str
    way: Way
    end: End
    running: bool
    chance: tuple[float, float, float]

    @property
    def name(self) -> str:
        """What is damaged and how, such as "blob: flip"."""
        return f"{self.where}: {self.damage}"

    @property
    def rows(self) -> bool:
        """Whether rows are damaged; False: files."""
        return self.where in ROWS or self.where == "rows"


def plans(seed: int, flips: int, *, every_way: bool = False) -> list[Plan]:
    """Return the cases of a run: each damage of each kind of file and row, then `flips` bit flips. Each kind meets each way to start.

    Args:
        seed: Determines everything that is random.
        flips: Number of bit flips. More flips are the same ones and further ones.
        every_way: Whether each damage of files and rows comes in each way; False: in one, in turn.
    """
    found = []
    for number, (where, damage, way) in enumerate(_structured(every_way), 1):
        chance = random.Random(f"{seed} {where} {damage} {way.value}")
        # The log of a database exists only after a kill.
        end = End.KILLED if where == "journal file" else chance.choice(list(End))
        found.append(Plan(number, where, damage, way, end, False, _numbers(chance)))
    ways = list(Way)
    for flip in range(flips):
        chance = random.Random(f"{seed} flip {flip}")
        where = FLIPS[flip % len(FLIPS)]
        way = ways[flip // len(FLIPS) % len(ways)]
        running = where not in ("database", "only blob") and chance.random() < 1 / RUNNING_EVERY
        end = chance.choice(list(End))
        found.append(Plan(len(found) + 1, where, "flip", way, end, running, _numbers(chance)))
    return found


def _structured(every_way: bool) -> Iterator[tuple[str, str, Way]]:
    ways = list(Way)
    for kinds, damages in ((FILES, FILE_DAMAGES), (ROWS, ROW_DAMAGES)):
        for first, where in enumerate(kinds):
            for number, damage in enumerate(damages):
                yield from (
                    (where, damage, way) for way in (ways if every_way else [ways[(first + number) % len(ways)]])
                )


def _numbers(chance: random.Random) -> tuple[float, float, float]:
    return chance.random(), chance.random(), chance.random()


def flipped(content: bytes, chance: float) -> bytes:
    """Return the bytes with one bit inverted; `chance` from 0 to below 1 chooses it. Empty content becomes one byte."""
    if not content:
        return b"\x01"
    bit = int(chance * 8 * len(content))
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)
