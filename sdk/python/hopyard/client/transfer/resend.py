"""Sends the code of an experiment again, after the copy in the store was lost or damaged."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopyard._runtime.bundle import BundleError, recorded_files
from hopyard.client.submission import pack
from hopyard.client.transfer.blobs import has_bundle, put_blob
from hopyard.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from hopyard.client.queries import ClientQueries
    from hopyard.client.types import Experiment

_NAMED_FILES: Final = 5


@dataclass(frozen=True, slots=True)
class Resent:
    """The result of `resend`.

    Attributes:
        source: The file or folder that has the code; None: the store had it already.
        size: Size of the packed code in bytes; 0: the store had it already.
    """

    source: Path | None
    size: int


async def resend(
    client: ClientQueries, experiment: Experiment, folder: Path | None, copies: Iterable[Path] = ()
) -> Resent:
    """Send the code of an experiment to the store again, unless the store has an undamaged copy.

    Args:
        client: The client of the cluster.
        experiment: The experiment.
        folder: The folder with the code, as it was when the experiment was created; None: use one of `copies`, else the current
            directory.
        copies: Files that may be packed copies of the code, such as those of node agents on this computer.

    Raises:
        InvalidInput: The experiment has no code, or the folder cannot be packed.
        Conflict: The folder does not contain the code with which the experiment was created.
    """
    if not experiment.bundle:
        raise InvalidInput(f"experiment {experiment.id} was created without code; there is nothing to send")
    connection = await client._connection()
    if await has_bundle(connection, experiment.bundle):
        return Resent(None, 0)
    source, data = None, None
    if folder is None:
        source, data = await asyncio.to_thread(_copy, copies, experiment.bundle)
    if data is None:
        source = Path.cwd() if folder is None else folder
        packed = await asyncio.to_thread(pack, source)
        if packed.sha256 != experiment.bundle:
            raise Conflict(await asyncio.to_thread(_differs, source, packed.files, packed.sha256, experiment))
        data = packed.data
    sent = await put_blob(connection, experiment.bundle, data)
    return Resent(source, len(data)) if sent else Resent(None, 0)


def _copy(files: Iterable[Path], sha256: str) -> tuple[Path | None, bytes | None]:
    """Return the first of the files that is the bundle with this hash, and its bytes; None if there is none."""
    for file in files:
        with suppress(BundleError, OSError):
            recorded_files(file, sha256)
            return file, file.read_bytes()
    return None, None


def _differs(folder: Path, files: Iterable[str], found: str, experiment: Experiment) -> str:
    """Return the message that a folder does not contain the code of an experiment, with the files that have changed since."""
    changed = []
    names = list(files)
    for name in names:
        with suppress(OSError):
            if (folder / name).stat().st_mtime > experiment.created_at:
                changed.append(name)
    listed = ", ".join(changed[:_NAMED_FILES])
    more = f" and {len(changed) - _NAMED_FILES} more" if len(changed) > _NAMED_FILES else ""
    since = (
        f"changed since the experiment was created: {listed}{more}"
        if changed
        else "none of its files has changed since"
    )
    return (
        f"the code in {folder} is not that of experiment {experiment.id}: its {len(names)} files are packed as {found}, "
        f"recorded is {experiment.bundle} ({since}). Give a folder with exactly the files that were submitted, such as a checkout "
        "of that version, and use the same release of zstandard: another one may pack equal files differently"
    )
