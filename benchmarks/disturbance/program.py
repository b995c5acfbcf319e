"""The training program of `benchmarks/chaos.py`: its whole state is a hash of everything that was trained so far.

The chain at a position is a hash of the chain before it, the position, the hyperparameters in force, and the data partition. A snapshot
contains the chain and nothing else. A report contains the chain as a number, so one number shows whether all training before it was as
it must be. This module is also the program's only file; it is copied as `train.py`.

Each unit is divided into `SHARDS` parts, which the ranks of a gang share, so the chain does not depend on their number.
"""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Mapping, Sequence, Set
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, Final

from hopyard.trainer import Trainer

SHARDS: Final = 4
BEGIN: Final = b""
"""The chain at position 0."""

CHAIN: Final = "chain"
PARTITION: Final = "partition"
METRIC: Final = "score"
NO_PARTITION: Final = -1
"""The number of the partition if there are none."""

GANG_SECONDS: Final = 150.0
"""Limit for a wait for another rank."""

_BYTES: Final = 16
_NUMBER_BYTES: Final = 6


def shard(chain: bytes, position: int, values: Mapping[str, Any], partition: int, number: int) -> bytes:
    """Return one part of the unit that ends at `position`, from the chain before it."""
    given = json.dumps([position, sorted(values.items()), partition, number])
    return blake2b(chain + given.encode(), digest_size=_BYTES).digest()


def joined(parts: Sequence[bytes]) -> bytes:
    """Return the chain after a unit with these parts, in order of their numbers."""
    return blake2b(b"".join(parts), digest_size=_BYTES).digest()


def advance(chain: bytes, position: int, values: Mapping[str, Any], partition: int = NO_PARTITION) -> bytes:
    """Return the chain at `position` from the chain before it."""
    return joined([shard(chain, position, values, partition, number) for number in range(SHARDS)])


def number_of(chain: bytes) -> float:
    """Return a chain as an exact number in [0, 1)."""
    return int.from_bytes(chain[:_NUMBER_BYTES], "big") / 2.0 ** (8 * _NUMBER_BYTES)


def metrics(chain: bytes, position: int, values: Mapping[str, Any], partition: int = NO_PARTITION) -> dict[str, float]:
    """Return the report at a position: a learning curve with noise that follows from the chain, and the chain."""
    number = number_of(chain)
    curve = (0.4 + 0.5 * float(values["x"])) * (1.0 - math.exp(-position / 20.0))
    return {METRIC: curve + 0.02 * number, CHAIN: number, PARTITION: float(partition)}


def pause(position: int) -> None:
    """Wait as long as the unit after a position takes; see `Chain`."""
    enough = os.environ.get("CHAOS_ENOUGH")
    if enough is None:
        return
    held = position + 1 >= int(os.environ["CHAOS_LENGTH"])
    end = math.inf if held else time.monotonic() + float(os.environ["CHAOS_PACE"])
    while (left := end - time.monotonic()) > 0 and not os.path.exists(enough):
        time.sleep(min(left, 0.1))


class Chain(Trainer):
    """Computes the chain.

    Until the file CHAOS_ENOUGH exists, a unit takes CHAOS_PACE seconds, and the one that ends at position CHAOS_LENGTH waits for
    the file. So a search lasts at least as long as its disturbances.
    """

    unit: ClassVar = "unit"

    def build(self, hyperparameters: Mapping[str, Any]) -> None:
        self.chain = BEGIN
        self.others: list[socket.socket] = []
        self._meet()

    def setup(self, hyperparameters: Mapping[str, Any], changed: Set[str]) -> None:
        self.values = dict(hyperparameters)

    def train(self) -> dict[str, float]:
        pause(self.position)
        rank, size, position = self.context.rank, self.context.world_size, self.position + 1
        partition = NO_PARTITION if self.context.inputs is None else int(self.context.inputs.read_text())
        own = {n: shard(self.chain, position, self.values, partition, n) for n in range(rank, SHARDS, size)}
        self.chain = joined(self._exchanged(own))
        return metrics(self.chain, position, self.values, partition)

    def save(self, directory: Path) -> None:
        (directory / CHAIN).write_bytes(self.chain)

    def load(self, directory: Path) -> None:
        self.chain = (directory / CHAIN).read_bytes()

    def close(self) -> None:
        for other in self.others:
            other.close()

    # ------------------------------------------------------------------------------------------------------------ gangs

    def _meet(self) -> None:
        """Connect the ranks: rank 0 listens at the rendezvous address, and the others connect to it."""
        rank, size = self.context.rank, self.context.world_size
        if size == 1:
            return
        host, _, port = self.context.rendezvous.rpartition(":")
        if rank == 0:
            with socket.create_server((host.strip("[]"), int(port))) as server:
                server.settimeout(GANG_SECONDS)
                found: dict[int, socket.socket] = {}
                while len(found) < size - 1:
                    connection, _ = server.accept()
                    found[connection.recv(1)[0]] = connection
            self.others = [found[each] for each in sorted(found)]
        else:
            self.others = [_connected(host.strip("[]"), int(port))]
            self.others[0].sendall(bytes([rank]))
        for other in self.others:
            other.settimeout(GANG_SECONDS)

    def _exchanged(self, own: Mapping[int, bytes]) -> list[bytes]:
        """Return the parts of all ranks in order of their numbers."""
        rank, size = self.context.rank, self.context.world_size
        if size == 1:
            return [own[number] for number in range(SHARDS)]
        if rank:
            self.others[0].sendall(b"".join(own[number] for number in sorted(own)))
            whole = _read(self.others[0], SHARDS * _BYTES)
            return [whole[begin : begin + _BYTES] for begin in range(0, len(whole), _BYTES)]
        parts = dict(own)
        for number, other in enumerate(self.others, 1):
            for part in range(number, SHARDS, size):
                parts[part] = _read(other, _BYTES)
        found = [parts[number] for number in range(SHARDS)]
        for other in self.others:
            other.sendall(b"".join(found))
        return found


def _connected(host: str, port: int) -> socket.socket:
    end = time.monotonic() + GANG_SECONDS
    while True:
        try:
            return socket.create_connection((host, port), timeout=GANG_SECONDS)
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("another rank is gone")
        data += part
    return data
