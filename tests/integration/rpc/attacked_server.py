"""A server in a process of its own, so that a test can measure its memory while a client attacks it.

It writes its address, and then, for each line of its input, by how many bytes the peak of its resident memory has grown.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from hopyard._net.server import Server


def peak() -> int:
    """Return the peak of the resident memory of this process in bytes."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def serve() -> None:
    """Serve health checks until the input ends."""
    server = Server("attacked")
    _say(await server.start())
    begin = peak()
    while await asyncio.to_thread(sys.stdin.readline):
        _say(str(peak() - begin))
    await server.stop(0)


if __name__ == "__main__":
    asyncio.run(serve())
