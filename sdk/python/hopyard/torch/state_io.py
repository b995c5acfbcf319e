"""The one file of a PyTorch snapshot: tensors and plain containers, read without running anything in it."""

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
    """Return `value` with only tensors, str, bytes, bool, int, float, None, lists, tuples and dicts in it.

    NumPy scalars become numbers, arrays tensors, subclasses of containers (but Counter) the plain ones.

    Raises:
        TypeError: something else is in it; the message names the place.
    """
    if value is None or type(value) in (bool, int, float, bytes):
        return value
    if isinstance(value, str):
        return sys.intern(str(value))  # pickle writes an object it knows as a reference: equal names must be one object
    if isinstance(value, torch.Tensor):
        return value.detach()
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, np.generic):
        return plain(value.item(), where)
    if isinstance(value, Counter):  # MultiStepLR's milestones
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
    """Write `state` to `path`; equal states give equal bytes.

    Without the checksums of the archive's parts, which take about as long as the writing: a snapshot has its hash.
    """
    state = plain(state, "state")
    with _no_checksums():
        torch.save(state, path)


@contextmanager
def _no_checksums() -> Iterator[None]:
    if not hasattr(torch.serialization, "set_crc32_options"):  # before 2.6
        yield
        return
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        yield
    finally:
        torch.serialization.set_crc32_options(before)


def read_state(path: Path, *, mapped: bool = False) -> dict[str, Any]:
    """Read what `write_state` wrote; tensors come to the CPU.

    With `mapped` they are pages of the file, for callers who copy them at once (`unmapped`).

    Raises:
        SnapshotStateError: the file is missing, damaged, or holds more than tensors and plain containers.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
        raise SnapshotStateError(f"{path} cannot be read: {error}") from error
    if not isinstance(state, dict):
        raise SnapshotStateError(f"{path} holds a {type(state).__name__}; expected a dict")
    return state


def unmapped(value: Any) -> Any:
    """A copy of `value` whose tensors are in memory of their own."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, dict):
        return type(value)({key: unmapped(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return type(value)(unmapped(item) for item in value)
    return value
