"""Validation of a data set before its registration: checks of the request, and reading of the files on their nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from hopyard._common.bounded_json import read_count
from hopyard._runtime.datasets.names import (
    MAX_PARTITIONS,
    check_data_name,
    check_url,
    order,
    parse_partition,
    partition_name,
)
from hopyard._runtime.datasets.node_query import PathAnswer, PathQuery
from hopyard.errors import Conflict, InvalidInput, Unavailable
from hopyard.v1 import data_pb2
from hopyard_scheduler.request_ids import check_request_id

Ask = Callable[[str, Sequence[PathQuery]], Awaitable[list[PathAnswer]]]


@dataclass(frozen=True, slots=True)
class WantedPartition:
    """A partition to register. It has either replicas or a URL.

    Attributes:
        data: The name of the data set.
        name: The name of the partition, such as train/0.
        replicas: Node and absolute path of each replica; empty if it has a URL.
        url: The URL from which each node can fetch the partition; empty if it has replicas.
        known: Size, hash and number of examples of the URL's content, if the request gives its hash; None: a node reads
            it.
    """

    data: str
    name: str
    replicas: tuple[tuple[str, str], ...]
    url: str = ""
    known: PathAnswer | None = None


def checked(data: data_pb2.DataSet, request: str) -> list[WantedPartition]:
    """Check a registration request without contacting nodes.

    Args:
        data: The data set of the request.
        request: The idempotency key, which must not be empty.

    Returns:
        The partitions, sorted by kind (train, eval) and number.

    Raises:
        InvalidInput: The request is invalid. The message lists all errors.
    """
    check_request_id(request)
    wrong: list[str] = []
    try:
        check_data_name(data.name)
    except ValueError as error:
        wrong.append(f"name: {error}")
    parts = []
    for one in data.partitions[: MAX_PARTITIONS + 1]:
        try:
            parts.append(_part(data.name, one))
        except ValueError as error:
            wrong.append(f"partition {one.name!r:.80}: {error}")
    if len(data.partitions) > MAX_PARTITIONS:
        wrong.append(f"partitions: found {len(data.partitions)}, allowed are {MAX_PARTITIONS} at most")
    if not wrong:
        parts.sort(key=lambda part: order(part.name))
        wrong = _gaps([part.name for part in parts])
    if wrong:
        raise InvalidInput("\n".join(wrong))
    return parts


def _part(data: str, one: data_pb2.DataPartition) -> WantedPartition:
    parse_partition(one.name)
    if one.url:
        if one.replicas:
            raise ValueError("found a URL and paths, allowed is one of them")
        examples = one.examples if one.HasField("examples") else None
        size = read_count(one.size_bytes, "size_bytes")
        if examples is not None:
            read_count(examples, "examples")
        known = PathAnswer(size, one.sha256, examples) if one.sha256 else None
        if known is not None and (len(one.sha256) != 64 or not set(one.sha256) <= set("0123456789abcdef")):
            raise ValueError(f"sha256: found {one.sha256!r:.80}, allowed are 64 lower-case hexadecimal digits")
        return WantedPartition(data, one.name, (), check_url(one.url), known)
    replicas = tuple((replica.node, replica.path) for replica in one.replicas)
    if not replicas:
        raise ValueError("found no place, needed is NODE:/PATH or a URL")
    for node, path in replicas:
        if not node or not PurePosixPath(path).is_absolute():
            raise ValueError(f"found {node}:{path}, needed is a node and an absolute path on it")
    if len({node for node, _ in replicas}) < len(replicas):
        raise ValueError("found one node twice, allowed is one path on each")
    return WantedPartition(data, one.name, replicas)


def _gaps(names: Sequence[str]) -> list[str]:
    """Return the errors in the numbering of partitions; empty: there are none.

    Numbers must start at 0 without gaps, for train and eval separately, and there must be a train partition.

    Args:
        names: The names of the partitions, sorted.
    """
    counts = {split: sum(name.startswith(f"{split}/") for name in names) for split in ("train", "eval")}
    if not counts["train"]:
        return ["partitions: found none to train on, needed are train/0, train/1, ..."]
    expected = [partition_name("train", number) for number in range(counts["train"])]
    expected += [partition_name("eval", number) for number in range(counts["eval"])]
    if list(names) == expected:
        return []
    if twice := sorted({name for name in names if names.count(name) > 1}):
        return [f"partitions: found {', '.join(twice)} twice"]
    missing = [name for name in expected if name not in names]
    return [
        f"partitions: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing; numbers begin at 0, without gaps"
    ]


async def inspected(parts: Sequence[WantedPartition], ask: Ask, connected: Sequence[str]) -> data_pb2.DataSet:
    """Read all partitions on their nodes and return the data set with sizes, hashes and numbers of examples.

    A URL without a given hash is read by one of the connected nodes.

    Args:
        parts: The partitions to register, at least one.
        ask: Sends path queries to a node.
        connected: Ids of the connected nodes.

    Raises:
        InvalidInput: Files are missing, or replicas of one partition differ. The message lists all errors.
        Conflict: A node disconnected, or no node is connected that could read a URL.
    """
    places: dict[str, list[tuple[int, PathQuery]]] = {}
    unknown = [index for index, part in enumerate(parts) if part.url and part.known is None]
    if unknown and not connected:
        raise Conflict("no node is connected that could get the URLs; start an agent first")
    for turn, index in enumerate(unknown):
        places.setdefault(connected[turn % len(connected)], []).append((index, PathQuery(parts[index].url, fetch=True)))
    for index, part in enumerate(parts):
        for node, path in part.replicas:
            places.setdefault(node, []).append((index, PathQuery(path)))
    try:
        answers = await asyncio.gather(*(ask(node, [wanted for _, wanted in asked]) for node, asked in places.items()))
    except Unavailable as error:
        raise Conflict(f"{error}; register again when it is back") from error
    found: list[list[tuple[str, PathAnswer]]] = [[] for _ in parts]
    for (node, asked), answer in zip(places.items(), answers, strict=True):
        for (index, wanted), one in zip(asked, answer, strict=True):
            found[index].append((f"{node} {wanted.place}", one))
    wrong: list[str] = []
    data = data_pb2.DataSet(name=parts[0].data)
    for part, sides in zip(parts, found, strict=True):
        wrong += _problems(part, sides)
        one = part.known or sides[0][1]
        data.partitions.add(
            name=part.name,
            size_bytes=one.size,
            sha256=one.sha256,
            examples=one.examples,
            url=part.url,
            replicas=[data_pb2.DataReplica(node=node, path=path) for node, path in sorted(part.replicas)],
        )
    if wrong:
        raise InvalidInput("\n".join(wrong))
    return data


def _problems(part: WantedPartition, sides: Sequence[tuple[str, PathAnswer]]) -> list[str]:
    broken = [f"{part.name}: on {where.split(' ', 1)[0]}: {one.error}" for where, one in sides if one.error]
    if broken:
        return broken
    if len({one.sha256 for _, one in sides}) > 1:
        told = "; ".join(f"{where}: {one.size} bytes, SHA-256 {one.sha256}" for where, one in sides)
        return [f"{part.name}: its replicas differ: {told}"]
    return []
