"""The time of a call over a Unix socket, with Hopyard's channel, token, table of permissions and error handling, against bare gRPC."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any, Final

import grpc.aio

from figures.frame import Sample
from figures.timing import percentile
from hopyard._net.auth import CallerKind, find_token
from hopyard._net.rpc import channel

CALLS: Final = 4000
BLOCK: Final = 200
"""Calls of one kind before the other kind's turn, so that both kinds meet the same conditions."""

_SERVERS: Final = """
import asyncio, sys
from pathlib import Path
import grpc.aio
from hopyard._net.auth import CallerKind
from hopyard._net.rpc.options import server_options
from hopyard._net.server import Server

async def echo(request, context):
    return request

def register(kit, server):
    handlers = {"Echo": grpc.unary_unary_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare", handlers),))

async def main(folder):
    bare = grpc.aio.server(options=tuple(server_options().items()))
    register(None, bare)
    bare.add_insecure_port(f"unix:{folder}/bare.sock")
    await bare.start()
    server = Server("echo", data=folder, permissions={"/bare/Echo": frozenset({CallerKind.USER})})
    server.add(register, None, "bare")
    print(await server.start(), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await bare.stop(0)
    await server.stop(0)

asyncio.run(main(Path(sys.argv[1])))
"""


async def measure(folder: Path) -> list[Sample]:
    """Return the median and the 99th percentile of the calls, in microseconds."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _SERVERS, str(folder), stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        address = (await process.stdout.readline()).decode().strip()
        token = find_token(CallerKind.USER, address)
        checked: Any
        plain: Any
        async with channel(address, token=token) as ours, grpc.aio.insecure_channel(f"unix:{folder}/bare.sock") as bare:
            checked, plain = ours.unary_unary("/bare/Echo"), bare.unary_unary("/bare/Echo")
            await _times(checked), await _times(plain)  # Connect, and warm up.
            found: dict[str, list[float]] = {"checked": [], "plain": []}
            for _ in range(CALLS // BLOCK):
                found["checked"] += await _times(checked)
                found["plain"] += await _times(plain)
    finally:
        process.stdin.close()
        await process.wait()
    return [
        Sample(
            name=f"call over a socket, p{round(rank * 100)}",
            value=percentile(found["checked"], rank),
            unit="us",
            baseline=percentile(found["plain"], rank),
            against="bare gRPC over a socket",
        )
        for rank in (0.5, 0.99)
    ]


async def _times(call: Any) -> list[float]:
    """Return the microseconds of each of `BLOCK` calls, one after the other."""
    found = []
    for _ in range(BLOCK):
        began = time.perf_counter()
        await call(b"x" * 200)
        found.append((time.perf_counter() - began) * 1e6)
    return found
