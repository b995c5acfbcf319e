"""The figure `memory`: the memory of an idle embedded cluster without experiments."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

import psutil

from figures.cluster import embedded, memory
from figures.frame import Sample

SLOTS: Final = 2
TARGET: Final = 250.0
BARE: Final = ("import grpc.aio, sqlalchemy, sqlite3", "import grpc.aio")
"""The minimum imports of the two processes: of the services, and of the agent."""


async def measure(folder: Path) -> list[Sample]:
    """Measure once."""
    bare = 0.0
    for code in BARE:
        bare += await _bare(code)
    async with embedded(folder, SLOTS) as (_, client):
        await client.nodes()
        every = [(name.split()[0], pss / 1e6, rss / 1e6) for name, (pss, rss) in memory().items()]
    # The agent starts spare training processes before there is a run for them; they are not counted.
    spares = [pss for name, pss, _ in every if name == "hopyard._runtime.runner"]
    found = {name: (pss, rss) for name, pss, rss in every if name != "hopyard._runtime.runner"}
    return [
        Sample(
            name="sum of PSS, idle embedded cluster without runners",
            value=sum(pss for pss, _ in found.values()),
            unit="MB",
            most=TARGET,
            baseline=bare,
            against="bare Python that imports grpc (and sqlalchemy)",
            # Memory that is shared with other processes counts proportionally in PSS, and fully in RSS.
            beside={f"MB PSS {name}": pss for name, (pss, _) in found.items()}
            | {"MB RSS, all": sum(rss for _, rss in found.values())}
            | {"MB PSS of spare training processes, not counted": sum(spares)},
        )
    ]


async def _bare(code: str) -> float:
    pipe = asyncio.subprocess.PIPE
    code += "\nprint(flush=True); input()"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    await process.stdout.readline()
    size: int = psutil.Process(process.pid).memory_full_info().pss
    await process.communicate(b"\n")
    return size / 1e6
