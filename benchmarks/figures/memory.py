"""Memory of an embedded cluster that has nothing to do: no runners, no experiment."""

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
"""What processes of as many kinds import at least: the services' and the agent's."""


async def measure(folder: Path) -> list[Sample]:
    """One run."""
    bare = 0.0
    for code in BARE:
        bare += await _bare(code)
    async with embedded(folder, SLOTS) as (_, client):
        await client.nodes()
        every = [(name.split()[0], pss / 1e6, rss / 1e6) for name, (pss, rss) in memory().items()]
    # An agent starts some before there is a run for them.
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
            # What the host's other processes share of it counts less in PSS, and fully in RSS.
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
