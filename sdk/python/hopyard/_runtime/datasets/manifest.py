"""What `hopyard data split` made: a file beside the partitions, which also says what lies at a URL."""

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
class MadePartition:
    """A partition that was made: its name, its file in the folder, bytes, their hash, and its examples."""

    name: str
    file: str
    size_bytes: int
    sha256: str
    examples: int


def write_manifest(folder: Path, made: Sequence[MadePartition]) -> Path:
    """Says in a folder what lies there; answers the file."""
    target = folder / FILE
    partial = target.with_name(f".{FILE}.part")
    document = {"format": _FORMAT, "partitions": [asdict(one) for one in made]}
    partial.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    partial.replace(target)
    return target


def read_manifest(text: str, place: str) -> list[MadePartition]:
    """What a manifest says, in the partitions' order.

    Raises:
        InvalidInput: It is none; `place` is named.
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


def _made(one: Any, place: str) -> MadePartition:
    """A partition as a manifest has it; raises ValueError with its place."""
    if not isinstance(one, dict):
        raise ValueError(f"{place}: needs an object, found {one!r:.80}")
    for field, kind in (("name", str), ("file", str), ("size_bytes", int), ("sha256", str), ("examples", int)):
        if type(one.get(field)) is not kind:
            found = f"found {one[field]!r:.80}" if field in one else "it is missing"
            raise ValueError(f"{place}.{field}: needs {'text' if kind is str else 'a whole number'}, {found}")
    return MadePartition(one["name"], one["file"], one["size_bytes"], one["sha256"], one["examples"])


def manifest_at(url: str) -> list[MadePartition]:
    """What lies at the URL of a folder that `hopyard data split` made; credentials come from the environment.

    Raises:
        NotFound: There is no manifest.
        InvalidInput: It is none, or no store is known that the URL could be of.
        Unavailable: The store did not give it.
        Unsupported: What gets URLs is not installed.
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
    """The store of a URL's folder, to be used with obstore.

    Raises:
        NotFound: It is on this computer's disk, and not there.
        InvalidInput: No store is known that the URL could be of.
        Unsupported: What gets URLs is not installed.
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
