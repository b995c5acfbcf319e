"""Rules for the names of data sets and partitions, and for the URLs of partitions."""

from __future__ import annotations

import re
from typing import Final, Literal
from urllib.parse import urlsplit

Split = Literal["train", "eval"]

TRAIN: Final = "train"
EVAL: Final = "eval"

MAX_PARTITIONS: Final = 10_000
"""Maximum number of partitions of a data set."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PARTITION: Final = re.compile(r"(train|eval)/(0|[1-9][0-9]{0,5})")


def check_data_name(name: str) -> str:
    """Return `name` if it is a valid name of a data set: 1 to 64 letters, digits and ._- that begin with a letter or digit.

    Raises:
        ValueError: The name is invalid.
    """
    if _NAME.fullmatch(name) is None:
        raise ValueError(
            f"found {name!r:.80}, allowed are up to 64 letters, digits and ._- that begin with a letter or digit"
        )
    return name


def partition_name(split: Split, number: int) -> str:
    """Return the name of a partition from its split ("train" or "eval") and number, such as "train/3"."""
    return f"{split}/{number}"


def parse_partition(name: str) -> tuple[Split, int]:
    """Return the split ("train" or "eval") and the number from the name of a partition, such as "train/3".

    Raises:
        ValueError: The name is invalid.
    """
    found = _PARTITION.fullmatch(name)
    if found is None:
        raise ValueError(f"found {name!r:.80}, allowed are train/0, train/1, ... and eval/0, ...")
    return (TRAIN if found[1] == TRAIN else EVAL), int(found[2])


def order(name: str) -> tuple[bool, int]:
    """Return the sort key for a partition's name: first training, then evaluation partitions, both by ascending number.

    Raises:
        ValueError: The name is invalid.
    """
    split, number = parse_partition(name)
    return split != TRAIN, number


def is_url(place: str) -> bool:
    """Return whether the location `place` is a URL, which is any text that contains "://", and not a path."""
    return "://" in place


def check_url(url: str) -> str:
    """Return `url` if it is a valid location of a partition that nodes can download.

    Raises:
        ValueError: The URL does not name an object, or it may contain a secret, which the catalog of data sets must not store.
    """
    parts = urlsplit(url)
    if not parts.scheme or parts.path.endswith("/") or not parts.path.strip("/"):
        raise ValueError(f"found {url!r:.200}, needed is one object's URL, such as s3://bucket/folder/train-0.npz")
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(
            f"found a URL with a query, a fragment or a user ({parts.scheme}://{parts.hostname}{parts.path}): credentials come "
            "from the nodes' environment"
        )
    return url
