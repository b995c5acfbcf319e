"""Parses the partition options of `hopyard data register`, and formats data sets as tables."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopyard._runtime.datasets.names import EVAL, TRAIN, Split, is_url, partition_name
from hopyard.cli.errors import WrongUse

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hopyard._runtime.datasets.manifest import WrittenPartition
    from hopyard.client.datasets import DataPartition, DataSet

_STATES: Final = {"PRESENT": "green", "BROKEN": "red", "AWAY": "yellow", "UNKNOWN": "dim"}


def partition(split: Split, given: str) -> DataPartition:
    """Parse the value of --partition or --eval: `0=node1:/path,node2:/path` or `0=URL`.

    Args:
        split: Whether the partition is for training (--partition) or for evaluation (--eval).
        given: The value.

    Raises:
        WrongUse: The value has neither form.
    """
    from hopyard.client.datasets import DataPartition, DataReplica

    option = "--partition" if split == TRAIN else "--eval"
    number, separator, places = given.partition("=")
    if not separator or not number.isdecimal() or not places:
        raise WrongUse(f"{option}: found {given!r}, needed is NUMBER=NODE:/PATH[,NODE:/PATH ...] or NUMBER=URL")
    name = partition_name(split, int(number))
    if is_url(places) and not places.partition("://")[0].partition(":")[1]:
        return DataPartition(name, url=places)
    replicas = []
    for place in places.split(","):
        if is_url(place):
            raise WrongUse(
                f"{option} {number}: found {place!r} beside others; a partition has either one URL or NODE:/PATH ..."
            )
        node, separator, path = place.partition(":")
        if not separator or not node or not path:
            raise WrongUse(f"{option} {number}: found {place!r}, needed is NODE:/PATH")
        replicas.append(DataReplica(node, path))
    return DataPartition(name, replicas=tuple(replicas))


def at_url(url: str) -> list[DataPartition]:
    """Return the partitions of a data set that was written by `hopyard data split` and copied to an object store.

    Args:
        url: URL of the copied folder. Its manifest file lists the partitions.

    Raises:
        NotFound: There is no manifest at the URL.
        InvalidInput: The file is not a manifest, or the scheme of the URL is not supported.
        Unavailable: The store failed.
        Unsupported: The package obstore is not installed.
    """
    from hopyard._runtime.datasets.manifest import manifest_at
    from hopyard.client.datasets import DataPartition

    base = url.rstrip("/")
    return [
        DataPartition(one.name, one.size_bytes, one.sha256, one.examples, url=f"{base}/{one.file}")
        for one in manifest_at(url)
    ]


def register_command(name: str, folder: Path, made: Sequence[WrittenPartition], nodes: Sequence[str]) -> str:
    """Return the command line `hopyard data register ...` that registers partitions.

    Args:
        name: Name of the data set.
        folder: The folder with the files of the partitions.
        made: The partitions.
        nodes: Names of nodes, at least one. The partitions of each split are assigned to them in round-robin order.
    """
    words = ["hopyard", "data", "register", name]
    for split, option in ((TRAIN, "--partition"), (EVAL, "--eval")):
        for number, one in enumerate(one for one in made if one.name.startswith(f"{split}/")):
            words += [option, f"{number}={nodes[number % len(nodes)]}:{folder.resolve() / one.file}"]
    return shlex.join(words)


def data_table(found: Sequence[DataSet]) -> RenderableType:
    """Format data sets as a table, one line each."""
    from rich.table import Table
    from rich.text import Text

    from hopyard._common import formatting

    if not found:
        return Text("no data sets yet; `hopyard data split FILE` makes partitions, `hopyard data register` names them")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("data", "train", "eval", "examples", "size", "missing", "used by"):
        table.add_column(column, justify="left" if column in ("data", "used by") else "right")
    for one in found:
        missing = sum(not _readable(part) for part in one.partitions)
        table.add_row(
            one.name,
            str(sum(part.name.startswith(f"{TRAIN}/") for part in one.partitions)),
            str(sum(part.name.startswith(f"{EVAL}/") for part in one.partitions)),
            _examples([part.examples for part in one.partitions]),
            formatting.size(sum(part.size_bytes for part in one.partitions)),
            Text(str(missing), style="red") if missing else "0",
            ", ".join(one.experiments) or formatting.NOTHING,
        )
    return table


def partitions_table(data: DataSet) -> RenderableType:
    """Format the partitions of a data set as a table, one line for each replica, followed by problems and the storage used."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from hopyard._common import formatting

    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("partition", "examples", "size", "SHA-256", "node", "state", "place"):
        table.add_column(column, justify="right" if column in ("examples", "size") else "left", no_wrap=True)
    wrong = []
    for part in data.partitions:
        first = [part.name, _examples([part.examples]), formatting.size(part.size_bytes), part.sha256[:12]]
        for replica in part.replicas:
            look = Text(replica.state.value.lower(), style=_STATES[replica.state.value])
            table.add_row(*first, replica.node, look, replica.path)
            first = [""] * len(first)
            wrong += [Text(f"{part.name}: {replica.detail}")] if replica.detail else []
        if not part.replicas:
            table.add_row(*first, formatting.NOTHING, Text("not read yet", style="dim"), part.url)
    used = [Text(f"used by {', '.join(data.experiments)}")] if data.experiments else []
    return Group(table, *wrong, Text(_held(data)), *used)


def _held(data: DataSet) -> str:
    """Return a sentence with the size of the data set and of all its replicas, and the size if each node had a full copy.

    Full copies are what task parallelism needs: training of complete models on separate nodes.
    """
    from hopyard._common import formatting

    found = data.storage
    if found.nodes < 2:
        return f"{formatting.size(found.data)} in all, {formatting.size(found.held)} on {formatting.count(found.nodes, 'node')}"
    return (
        f"{formatting.size(found.data)} in all, {formatting.size(found.held)} on {found.nodes} nodes; a full copy on each of them, as "
        f"task parallelism needs, would be {formatting.size(found.copies)}"
    )


def _readable(part: DataPartition) -> bool:
    return bool(part.url) or any(replica.state.value == "PRESENT" for replica in part.replicas)


def _examples(counts: Sequence[int | None]) -> str:
    known = [count for count in counts if count is not None]
    return str(sum(known)) if len(known) == len(counts) else "-"
