"""A training that counts positions. Each metric depends on all training before it and on every byte of this folder."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Set
from hashlib import shake_128
from pathlib import Path
from typing import Any, Final

from hopyard.trainer import Trainer

FOLDER: Final = Path(__file__).parent
CODE: Final = b"".join((FOLDER / name).read_bytes() for name in ("train.py", "constants.json"))
STATE_BYTES: Final = 512

RELEASED: Final = os.environ.get("DAMAGE_RELEASED", "")
"""A file: until it exists, no job trains beyond position `SLOW_FROM`."""

ENOUGH: Final = os.environ.get("DAMAGE_ENOUGH", "")
"""A file: until it exists, training is slow from position `SLOW_FROM` on, and no job trains beyond position `HELD_AT`."""

SLOW_FROM: Final = 5
HELD_AT: Final = 13
SLOW_SECONDS: Final = 0.3
SECONDS: Final = 0.01


class Chain(Trainer):
    def build(self, hyperparameters: Mapping[str, Any]) -> None:
        self.state = bytes(STATE_BYTES)

    def setup(self, hyperparameters: Mapping[str, Any], changed: Set[str]) -> None:
        self.given = json.dumps(dict(hyperparameters), sort_keys=True).encode()

    def train(self) -> Mapping[str, float]:
        self._hold()
        slow = self.position >= SLOW_FROM and not _exists(ENOUGH)
        time.sleep(SLOW_SECONDS if slow else SECONDS)
        self.state = shake_128(self.state + self.given + CODE).digest(STATE_BYTES)
        return {"score": int.from_bytes(self.state[:6], "big") / 2**48}

    def save(self, directory: Path) -> None:
        (directory / "state").write_bytes(self.state)

    def load(self, directory: Path) -> None:
        self.state = (directory / "state").read_bytes()

    def _hold(self) -> None:
        while not _exists(ENOUGH):
            if self.position < (HELD_AT if _exists(RELEASED) else SLOW_FROM):
                return
            time.sleep(SECONDS)


def _exists(file: str) -> bool:
    """Return whether a file exists; True if none is named."""
    return not file or os.path.exists(file)
