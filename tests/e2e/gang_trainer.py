"""A trainer that needs all its ranks in every iteration: each has a part of the data, and they sum their gradients.

Only `lr` affects the result, so that the curves of interrupted and uninterrupted trainings can be compared.

Hyperparameters: `lr`, and for tests: `seconds` (length of an iteration until the file `enough` exists), `late` (the position
from which an iteration takes five seconds until then), `misdeed` (what the rank
`culprit` does in the iteration that ends at position `at`: raise, kill, sleep) and `once` (a file that is created then; if it
exists, the misdeed does not happen).
"""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hopyard import Trainer

FEATURES = 4
POINTS = 48
LIMIT = 150.0
"""Limit for waiting on another rank, in seconds."""


class Linear(Trainer):
    def build(self, hyperparameters: Mapping[str, Any]) -> None:
        rng = random.Random(7)
        truth = [rng.gauss(0.0, 1.0) for _ in range(FEATURES)]
        points = []
        for _ in range(POINTS):
            x = [rng.gauss(0.0, 1.0) for _ in range(FEATURES)]
            points.append((x, sum(a * b for a, b in zip(truth, x, strict=True)) + rng.gauss(0.0, 0.1)))
        self.points = points[self.context.rank :: self.context.world_size]
        self.weights = [0.0] * FEATURES
        sys.stdout.write(f"rank {self.context.rank} of {self.context.world_size} is process {os.getpid()}\n")
        variables = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        sys.stdout.write(f"environment {' '.join(os.environ.get(name, '-') for name in variables)}\n")
        sys.stdout.write(f"gang {','.join(self.context.addresses)} {self.context.rendezvous}\n")
        self.meet()

    def meet(self) -> None:
        """Connect the ranks: rank 0 listens at the rendezvous address, the others connect to it."""
        self.others: list[socket.socket] = []
        host, _, port = self.context.rendezvous.rpartition(":")
        if self.context.world_size == 1:
            return
        if self.context.rank == 0:
            with socket.create_server((host, int(port))) as server:
                server.settimeout(LIMIT)
                found: dict[int, socket.socket] = {}
                while len(found) < self.context.world_size - 1:
                    connection, _ = server.accept()
                    connection.settimeout(None)
                    found[connection.recv(1)[0]] = connection
                self.others = [found[rank] for rank in sorted(found)]
            return
        end = time.monotonic() + LIMIT
        while not self.others:
            try:
                self.others = [socket.create_connection((host, int(port)), timeout=LIMIT)]
            except ConnectionRefusedError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
        self.others[0].settimeout(None)
        self.others[0].sendall(bytes([self.context.rank]))

    def setup(self, hyperparameters: Mapping[str, Any], changed: frozenset[str]) -> None:
        self.lr = float(hyperparameters["lr"])

    def train(self) -> dict[str, float]:
        given = self.hyperparameters
        self.pause(given)
        if given.get("culprit") == self.context.rank and self.position + 1 == given["at"]:
            self.misbehave(given)
        sums = [0.0] * (FEATURES + 1)
        for x, y in self.points:
            error = sum(w * a for w, a in zip(self.weights, x, strict=True)) - y
            sums[FEATURES] += error * error
            for index, a in enumerate(x):
                sums[index] += 2 * error * a
        *gradient, loss = (value / POINTS for value in self.added(sums))
        self.weights = [w - self.lr * g for w, g in zip(self.weights, gradient, strict=True)]
        return {"loss": loss}

    def pause(self, given: Mapping[str, Any]) -> None:
        end = time.monotonic() + (5.0 if self.position >= given.get("late", sys.maxsize) else given.get("seconds", 0.0))
        while time.monotonic() < end and not os.path.exists(given.get("enough", "")):
            time.sleep(0.01)

    def misbehave(self, given: Mapping[str, Any]) -> None:
        if "once" in given:
            try:
                os.close(os.open(given["once"], os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
        if given["misdeed"] == "raise":
            raise ValueError("a bad shard")
        if given["misdeed"] == "sleep":
            time.sleep(3600)
        os.kill(os.getpid(), signal.SIGKILL)

    def added(self, values: Sequence[float]) -> Sequence[float]:
        """Return the sum of the values of all ranks, added in order of rank: the same bits on each."""
        layout = f"{len(values)}d"
        size = struct.calcsize(layout)
        if self.context.rank:
            self.others[0].sendall(struct.pack(layout, *values))
            return struct.unpack(layout, self.read(self.others[0], size))
        for other in self.others:
            theirs = struct.unpack(layout, self.read(other, size))
            values = [a + b for a, b in zip(values, theirs, strict=True)]
        for other in self.others:
            other.sendall(struct.pack(layout, *values))
        return values

    def read(self, connection: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = connection.recv(size - len(data))
            if not part:
                raise ConnectionError("another rank is gone")
            data += part
        return data

    def save(self, directory: Path) -> None:
        (directory / "weights").write_text(" ".join(w.hex() for w in self.weights))

    def load(self, directory: Path) -> None:
        self.weights = [float.fromhex(text) for text in (directory / "weights").read_text().split()]

    def close(self) -> None:
        for other in self.others:
            other.close()
