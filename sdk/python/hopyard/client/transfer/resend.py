"""Sends the code of an experiment again, after the copy in the store was lost or damaged."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hopyard._runtime import bundle
from hopyard._runtime.bundle import IGNORE_FILE, BundleError, recorded_files
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


def _differs(folder: Path, files: Sequence[str], found: str, experiment: Experiment) -> str:
    """Return the message that a folder does not contain the code of an experiment, with the files that make the difference.

    The names of the recorded files are lost with the code. Files are additional if the others have the recorded hash.
    """
    changed = _newer(folder, files, experiment.created_at, moved=False)
    # A file that was moved or copied into the folder may have kept its old time of modification.
    for names in (changed, _newer(folder, files, experiment.created_at, moved=True)):
        if 0 < len(names) < len(files) and _packed_without(folder, names) == experiment.bundle:
            return _additional(
                folder, names, kept_rules=IGNORE_FILE in files and IGNORE_FILE not in names, of=experiment
            )
    since = (
        f"changed or added since the experiment was created: {_listed(changed)}"
        if changed
        else "none of its files has changed since"
    )
    return (
        f"the code in {folder} is not that of experiment {experiment.id}: its {len(files)} files are packed as {found}, "
        f"recorded is {experiment.bundle} ({since}). Give a folder with exactly the files that were submitted, such as a checkout "
        "of that version, and use the same release of zstandard: another one may pack equal files differently"
    )


def _newer(folder: Path, files: Iterable[str], time: float, *, moved: bool) -> list[str]:
    """Return the files that were modified after a time; with `moved` also those that were moved or whose mode was changed."""
    found = []
    for name in files:
        with suppress(OSError):
            status = (folder / name).stat()
            if (max(status.st_mtime, status.st_ctime) if moved else status.st_mtime) > time:
                found.append(name)
    return found


def _packed_without(folder: Path, names: Collection[str]) -> str:
    """Return the hash of the code of a folder without some files; empty: it cannot be packed any more."""
    try:
        return bundle.pack(folder, without=names).sha256
    except (BundleError, OSError):
        return ""


def _additional(folder: Path, names: Sequence[str], *, kept_rules: bool, of: Experiment) -> str:
    """Return the message that a folder contains the code of an experiment and additional files.

    Args:
        folder: The folder.
        names: The additional files.
        kept_rules: Whether the code includes a `.hopyardignore`.
        of: The experiment.
    """
    it = "it" if len(names) == 1 else "them"
    remedy = (
        f"a changed {IGNORE_FILE} would be other code, too"
        if kept_rules
        else f"or list {it} and {IGNORE_FILE} itself in a file {IGNORE_FILE}"
        if IGNORE_FILE not in names
        else f"or list {'it' if len(names) == 1 else 'all of them'} in {IGNORE_FILE}, which is then left out itself"
    )
    return (
        f"the code in {folder} is not only that of experiment {of.id}: {len(names)} of its files "
        f"{'is' if len(names) == 1 else 'are'} additional to those that were submitted: {_listed(names)}. Move {it} to another folder"
        f"{'; ' if kept_rules else ', '}{remedy}. The other files are unchanged"
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_FILES} more" if len(names) > _NAMED_FILES else ""
    return ", ".join(names[:_NAMED_FILES]) + more
