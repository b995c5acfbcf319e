"""Splits one file into shuffled partitions, of equal size or in proportion to the speeds of the hosts that train on them."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hopyard._common.optional_import import need
from hopyard._runtime.datasets.manifest import WrittenPartition, write_manifest
from hopyard._runtime.datasets.names import EVAL, MAX_PARTITIONS, TRAIN, partition_name
from hopyard._runtime.datasets.reader import content, first_lengths
from hopyard.errors import AlreadyExists, InvalidInput, NotFound

SUFFIXES: Final = (".npz", ".parquet")

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """Parameters for splitting a file into training and evaluation partitions.

    Attributes:
        into: Number of training partitions (>= 1).
        seed: Seed of the shuffle (>= 0).
        speeds: Relative speed of the host for each training partition (> 0), to which the partition's size is proportional, so
            that all hosts take equally long; empty: equal sizes.
        eval_fraction: Fraction of the examples for evaluation, in [0, 1).
        eval_into: Number of evaluation partitions (>= 1); ignored if `eval_fraction` is 0.
    """

    into: int
    seed: int = 0
    speeds: tuple[float, ...] = ()
    eval_fraction: float = 0.0
    eval_into: int = 1

    def check(self) -> None:
        """Raise `InvalidInput` unless the plan is valid.

        A plan is invalid if a value is out of range, the number of `speeds` is neither 0 nor `into`, or `into` and `eval_into`
        together exceed `MAX_PARTITIONS`.
        """
        if not (self.into >= 1 and self.eval_into >= 1 and self.into + self.eval_into <= MAX_PARTITIONS):
            raise InvalidInput(
                f"partitions: found {self.into} to train on and {self.eval_into} to evaluate on, allowed are 1 or more of each and "
                f"{MAX_PARTITIONS} together"
            )
        if self.speeds and len(self.speeds) != self.into:
            raise InvalidInput(f"speeds: found {len(self.speeds)} for {self.into} partitions; each has one")
        if not all(math.isfinite(speed) and speed > 0 for speed in self.speeds):
            raise InvalidInput(f"speeds: found {list(self.speeds)}, allowed are numbers above 0")
        if not 0 <= self.eval_fraction < 1:
            raise InvalidInput(f"eval fraction: found {self.eval_fraction}, allowed is 0 to below 1")
        if self.seed < 0:
            raise InvalidInput(f"shuffle seed: found {self.seed}, allowed is 0 or more")


def sizes(total: int, weights: Sequence[float]) -> list[int]:
    """Divide an integer into integer parts in proportion to weights.

    Each part differs from its exact share by less than one, except that no part is 0 if `total` suffices for all.

    Args:
        total: The number to divide (>= 0).
        weights: One weight (> 0) for each part; there must be at least one.
    """
    whole = math.fsum(weights)
    exact = [total * weight / whole for weight in weights]
    parts = [math.floor(part) for part in exact]
    rest = total - sum(parts)
    by_rest = sorted(range(len(parts)), key=lambda index: (parts[index] - exact[index], index))
    for index in by_rest[:rest]:
        parts[index] += 1
    for index, part in enumerate(parts):
        largest = max(range(len(parts)), key=lambda other: parts[other])
        if part == 0 and parts[largest] > 1:
            parts[largest] -= 1
            parts[index] = 1
    return parts


def rows_of(total: int, plan: SplitPlan) -> dict[str, Rows]:
    """Return, by partition name, the indices of each partition's examples, shuffled; each example is in exactly one partition.

    Args:
        total: Number of examples.
        plan: How to split.

    Raises:
        InvalidInput: The plan is invalid, or there are too few examples for it.
    """
    plan.check()
    kept = round(total * plan.eval_fraction)
    parts = plan.eval_into if plan.eval_fraction else 0
    if total - kept < plan.into or kept < parts:
        wanted = f"{plan.into} partitions to train on" + (f" and {parts} to evaluate on" if parts else "")
        raise InvalidInput(
            f"{total} examples are too few for {wanted} ({kept} of them to evaluate on): each needs at least one"
        )
    shuffled = np.random.default_rng(plan.seed).permutation(total)
    names = [partition_name(TRAIN, number) for number in range(plan.into)]
    counts = sizes(total - kept, plan.speeds or (1.0,) * plan.into)
    if parts:
        names += [partition_name(EVAL, number) for number in range(parts)]
        counts += sizes(kept, (1.0,) * parts)
    return dict(zip(names, np.split(shuffled, np.cumsum(counts)[:-1]), strict=True))


def split(file: Path, folder: Path, plan: SplitPlan) -> list[WrittenPartition]:
    """Split a file into partition files, such as `train-0.npz`, in a folder, and write their manifest there.

    If this fails, the partition files are deleted.

    Args:
        file: An npz whose arrays have the same first dimension, or a Parquet file.
        folder: Target folder; created if missing. It must not contain partitions.
        plan: How to split.

    Returns:
        The partitions: first those for training, then those for evaluation, both by ascending number.

    Raises:
        NotFound: The file does not exist.
        AlreadyExists: The folder contains partitions.
        InvalidInput: The file cannot be split, or the plan is invalid.
        Unsupported: The file is Parquet and pyarrow is not installed.
    """
    plan.check()
    cut = _cutter(file)
    folder.mkdir(parents=True, exist_ok=True)
    taken = sorted(
        path.name for path in folder.iterdir() if path.name.startswith(("train-", "eval-", "partitions.json"))
    )
    if taken:
        raise AlreadyExists(f"{folder}: it holds {taken[0]} already; name another folder, or empty it")
    paths: dict[str, Path] = {}

    def place(name: str) -> Path:
        paths[name] = folder / f"{name.replace('/', '-')}{file.suffix}"
        return paths[name]

    try:
        rows = cut(file, plan, place)
        made = [_made(name, paths[name], len(chosen)) for name, chosen in rows.items()]
        write_manifest(folder, made)
    except BaseException:
        for path in paths.values():
            path.unlink(missing_ok=True)
        raise
    return made


_Cut = Callable[[Path, SplitPlan, Callable[[str], Path]], Mapping[str, Rows]]


def _cutter(file: Path) -> _Cut:
    if not file.is_file():
        raise NotFound(f"{file}: there is no such file")
    if file.suffix == ".npz":
        return _cut_npz
    if file.suffix == ".parquet":
        need("pyarrow", "data")  # Fails before anything is written.
        return _cut_parquet
    raise InvalidInput(f"{file}: found {file.suffix or 'no suffix'}, allowed are {' and '.join(SUFFIXES)}")


def _made(name: str, path: Path, examples: int) -> WrittenPartition:
    found = content(path)
    return WrittenPartition(name, path.name, found.size, found.sha256, examples)


def _cut_npz(file: Path, plan: SplitPlan, place: Callable[[str], Path]) -> Mapping[str, Rows]:
    """Write the partition files of an npz file one array at a time, so that only the largest array must fit into memory.

    Args:
        file: The npz file.
        plan: How to split.
        place: Returns the path of the file for a partition name.

    Returns:
        The indices of each partition's examples, by partition name.

    Raises:
        InvalidInput: The file cannot be split, or the plan is invalid.
    """
    try:
        lengths = first_lengths(file)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{file}: it cannot be read as npz of plain arrays: {error}") from error
    if len(set(lengths.values())) != 1 or -1 in lengths.values():
        found = (
            ", ".join(f"{name} {'none' if length < 0 else length}" for name, length in lengths.items()) or "no array"
        )
        raise InvalidInput(f"{file}: all arrays need the same first length, that of the examples; found {found}")
    rows = rows_of(next(iter(lengths.values())), plan)
    with np.load(file, allow_pickle=False) as source:
        packed = {name: zipfile.ZipFile(place(name), "w", zipfile.ZIP_STORED, allowZip64=True) for name in rows}
        try:
            for array in source.files:
                whole = source[array]
                for name, chosen in rows.items():
                    # Like numpy's savez, but with a constant time, so that equal arrays give equal bytes.
                    entry = zipfile.ZipInfo(f"{array}.npy", (1980, 1, 1, 0, 0, 0))
                    with packed[name].open(entry, "w", force_zip64=True) as opened:
                        np.lib.format.write_array(opened, whole[chosen], allow_pickle=False)
        finally:
            for one in packed.values():
                one.close()
    return rows


def _cut_parquet(file: Path, plan: SplitPlan, place: Callable[[str], Path]) -> Mapping[str, Rows]:
    parquet = need("pyarrow.parquet", "data")
    try:
        table = parquet.read_table(file)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{file}: it cannot be read as Parquet: {error}") from error
    rows = rows_of(table.num_rows, plan)
    for name, chosen in rows.items():
        parquet.write_table(table.take(chosen), place(name))
    return rows
