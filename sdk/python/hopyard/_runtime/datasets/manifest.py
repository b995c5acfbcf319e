"""The manifest of partitioned data: a JSON file that `hopyard data split` writes next to the partitions and that lists them.

If the folder is read through a URL, the manifest tells which partitions exist.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from hopyard._common.optional_import import need
from hopyard._runtime.datasets.names import order, parse_partition
from hopyard.errors import InvalidInput, NotFound, Unavailable

FILE: Final = "partitions.json"

_FORMAT: Final = 1
_MAX_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class WrittenPartition:
    """A partition file that `hopyard data split` wrote.

    Attributes:
        name: Name of the partition, such as "train/3".
        file: Name of the file in the folder of the manifest.
        size_bytes: Size of the file in bytes.
        sha256: Hash of the file.
        examples: Number of examples.
    """

    name: str
    file: str
    size_bytes: int
    sha256: str
    examples: int


def write_manifest(folder: Path, made: Sequence[WrittenPartition]) -> Path:
    """Write the manifest of the partitions `made` into `folder` atomically, and return its path."""
    target = folder / FILE
    partial = target.with_name(f".{FILE}.part")
    document = {"format": _FORMAT, "partitions": [asdict(one) for one in made]}
    partial.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    partial.replace(target)
    return target


def read_manifest(text: str, place: str) -> list[WrittenPartition]:
    """Return the partitions in a manifest: first those for training, then those for evaluation, both by ascending number.

    Args:
        text: Content of the manifest.
        place: Path or URL of the manifest, for error messages.

    Raises:
        InvalidInput: The text is not a manifest.
    """
    try:
        document = json.loads(text)
        if not isinstance(document, dict):
            raise ValueError(f"needs an object, found {document!r:.80}")
        if document["format"] != _FORMAT:
            raise ValueError(f"format: found {document['format']!r}, this version reads {_FORMAT}")
        if not isinstance(document["partitions"], list):
            raise ValueError(f"partitions: needs a list, found {document['partitions']!r:.80}")
        made = [_made(one, f"partitions[{number}]") for number, one in enumerate(document["partitions"])]
        for one in made:
            parse_partition(one.name)
            if "/" in one.file or one.file in ("", ".", ".."):
                raise ValueError(f"file: found {one.file!r:.80}, allowed is the name of a file beside it")
    except KeyError as error:
        raise InvalidInput(
            f"{place}: it is not what `hopyard data split` writes: {error.args[0]} is missing"
        ) from error
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{place}: it is not what `hopyard data split` writes: {error}") from error
    return sorted(made, key=lambda one: order(one.name))


def _made(one: Any, place: str) -> WrittenPartition:
    """Return the partition that a manifest's list element describes.

    Args:
        one: The element, as parsed from JSON.
        place: Position of the element in the manifest, for error messages.

    Raises:
        ValueError: The element is invalid.
    """
    if not isinstance(one, dict):
        raise ValueError(f"{place}: needs an object, found {one!r:.80}")
    for field, kind in (("name", str), ("file", str), ("size_bytes", int), ("sha256", str), ("examples", int)):
        if type(one.get(field)) is not kind:
            found = f"found {one[field]!r:.80}" if field in one else "it is missing"
            raise ValueError(f"{place}.{field}: needs {'text' if kind is str else 'a whole number'}, {found}")
    return WrittenPartition(one["name"], one["file"], one["size_bytes"], one["sha256"], one["examples"])


def manifest_at(url: str) -> list[WrittenPartition]:
    """Read the manifest in a folder that `hopyard data split` wrote, and return its partitions.

    Args:
        url: URL of the folder. Credentials for the store come from environment variables.

    Raises:
        NotFound: The manifest does not exist.
        InvalidInput: The file is not a manifest, or no store supports the URL.
        Unavailable: The store failed.
        Unsupported: The package obstore is not installed.
    """
    place = f"{url.rstrip('/')}/{FILE}"
    store, exceptions = store_at(url.rstrip("/")), need("obstore.exceptions", "data")
    try:
        answer = need("obstore", "data").get(store, FILE)
        size = answer.meta["size"]
        data = bytes(answer.bytes()) if size <= _MAX_BYTES else b""
    except FileNotFoundError as error:
        raise NotFound(f"{place}: there is nothing; `hopyard data split` writes it beside the partitions") from error
    except exceptions.BaseError as error:
        raise Unavailable(f"{place}: {str(error).splitlines()[0]}") from error
    if size > _MAX_BYTES:
        raise InvalidInput(f"{place}: found {size} bytes, allowed are {_MAX_BYTES}")
    return read_manifest(data.decode("utf-8", errors="replace"), place)


def store_at(url: str) -> Any:
    """Return the obstore store for the URL of a folder.

    Raises:
        NotFound: The URL names a folder on this host that does not exist.
        InvalidInput: No store supports the URL.
        Unsupported: The package obstore is not installed.
    """
    stores, exceptions = need("obstore.store", "data"), need("obstore.exceptions", "data")
    try:
        return stores.from_url(url)
    except (exceptions.BaseError, ValueError) as error:
        place = urlsplit(url)
        if place.scheme == "file" and not place.netloc and not Path(unquote(place.path)).is_dir():
            raise NotFound(f"{url}: there is no such folder") from error
        raise InvalidInput(
            f"{url}: no store is known for it ({str(error).splitlines()[0]}); allowed are file:///, https://, s3://, gs:// and az://"
        ) from error
