"""Reads and writes the file of a PyTorch snapshot. It holds tensors and plain containers, and loading it executes no code."""

from __future__ import annotations

import pickle
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hopyard.trainer import SnapshotStateError


def plain(value: object, where: str) -> Any:
    """Convert `value` to tensors, str, bytes, bool, int, float, None, lists, tuples and dicts only.

    NumPy scalars become numbers, and arrays become tensors. Subclasses of containers become plain containers, except that a
    Counter remains a Counter.

    Args:
        value: The value.
        where: Name of the value in error messages.

    Raises:
        TypeError: The value contains another type. The message names the place.
    """
    if value is None or type(value) in (bool, int, float, bytes):
        return value
    if isinstance(value, str):
        # Pickle writes repeated objects as references. Equal names must be one object to give equal bytes.
        return sys.intern(str(value))
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, np.generic):
        return plain(value.item(), where)
    if isinstance(value, Counter):  # Used for the milestones of MultiStepLR.
        return Counter(plain(dict(value), where))
    if isinstance(value, Mapping):
        return {plain(key, f"a key of {where}"): plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
        return items if isinstance(value, list) else tuple(items)
    for kind in (int, float):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"{where} is a {type(value).__qualname__}; a snapshot holds tensors, numbers, text and containers")


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write `state` to the file `path`. Equal states produce equal bytes.

    The file contains no checksums: they take about as long as the writing, and a snapshot has a hash.

    Raises:
        TypeError: The state contains something other than tensors and plain containers.
    """
    state = plain(state, "state")
    with _no_checksums():
        torch.save(state, path)


@contextmanager
def _no_checksums() -> Iterator[None]:
    if not hasattr(torch.serialization, "set_crc32_options"):  # PyTorch before 2.6.
        yield
        return
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        yield
    finally:
        torch.serialization.set_crc32_options(before)


def read_state(path: Path, *, mapped: bool = False) -> dict[str, Any]:
    """Read a file that `write_state` wrote. Tensors are loaded to the CPU.

    Args:
        path: The file.
        mapped: Let tensors be memory-mapped pages of the file; the caller must copy them at once (`unmapped`).

    Raises:
        SnapshotStateError: The file is missing or damaged, or contains other types than tensors and plain containers.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
        raise SnapshotStateError(f"{path} cannot be read: {error}") from error
    if not isinstance(state, dict):
        raise SnapshotStateError(f"{path} holds a {type(state).__name__}; expected a dict")
    return state


def unmapped(value: Any) -> Any:
    """Return a copy of `value` whose tensors are in separate memory."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return type(value)({key: unmapped(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return type(value)(unmapped(item) for item in value)
    return value
