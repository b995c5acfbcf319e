"""Compares the checksums of the journal in a copy of a database, and names the older generations that have a damaged journal intact."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hopyard.errors import DataLoss
from hopyard_appstat.backup.generations import has_database, readable_manifests
from hopyard_appstat.backup.manifest import BackupManifest
from hopyard_appstat.backup.target import Target
from hopyard_appstat.database.read_only import read_only_connection
from hopyard_appstat.database.record_chain import ChainCheck

_CLUSTER: Final = "cluster"
"""Name of the stream of the cluster itself."""

_RECORDS: Final = (
    "SELECT stream, position, at, kind, payload, version, checksum FROM journal WHERE stream = ? ORDER BY position"
)
_WITHOUT_ROW: Final = (
    "SELECT DISTINCT stream FROM journal WHERE stream NOT IN (SELECT name FROM streams) ORDER BY stream"
)


@dataclass(frozen=True, slots=True)
class JournalCheck:
    """The result of reading the journal in a database.

    Attributes:
        records: Number of records whose checksums were right.
        intact: Names of the undamaged streams.
        damaged: What is wrong with each damaged stream, by its name: the first half of a sentence, which names stream and position.
    """

    records: int
    intact: frozenset[str]
    damaged: dict[str, str]


def check_journal(path: Path) -> JournalCheck:
    """Read all journal records in a copy of a database that no process writes, and compare their checksums.

    The database must have the newest schema.

    Raises:
        DataLoss: The database cannot be read.
    """
    records, intact, damaged = 0, set[str](), dict[str, str]()
    try:
        with closing(read_only_connection(path, immutable=True)) as database:
            for name, length, head in database.execute("SELECT name, length, head FROM streams ORDER BY name"):
                chain = ChainCheck(str(name), advice="")
                try:
                    _read(database, name, chain)
                    chain.end(length, head)
                    intact.add(str(name))
                except DataLoss as error:
                    damaged[str(name)] = str(error)
                # A value has another type than its column, or is not UTF-8.
                except (AttributeError, TypeError, ValueError, OverflowError, struct.error, sqlite3.Error) as error:
                    damaged[str(name)] = f"journal of {name}: cannot be read after record {chain.position}: {error}"
                records += chain.position
            for (name,) in database.execute(_WITHOUT_ROW):
                damaged[str(name)] = f"journal of {name}: its row is missing"
    except sqlite3.Error as error:
        raise DataLoss(f"{path}: cannot be read as a database ({error})") from error
    return JournalCheck(records, frozenset(intact), damaged)


def _read(database: sqlite3.Connection, stream: str, chain: ChainCheck) -> None:
    with closing(database.execute(_RECORDS, (stream,))) as found:
        names = [column[0] for column in found.description]
        chain.add(dict(zip(names, row, strict=True)) for row in found)


def consequences(target: Target, number: int, damaged: dict[str, str]) -> tuple[str, ...]:
    """Return one sentence for each damaged stream of a generation: what a restore has to expect, and which older generation to use.

    It reads the databases of older generations, the newest first, until each stream is found intact.

    Args:
        target: The target.
        number: Number of the generation. Only older ones are read.
        damaged: What is wrong with each damaged stream, by its name.
    """
    intact = _newest_intact(target, number, damaged) if damaged else {}
    return tuple(
        f"{what}; {_effect(stream)}; {_remedy(stream, intact.get(stream), target.path)}"
        for stream, what in damaged.items()
    )


def _effect(stream: str) -> str:
    if stream == _CLUSTER:
        return "a cluster that is restored from this backup does not start"
    return f"in a cluster that is restored from this backup, the experiment {stream} is PAUSED"


def _remedy(stream: str, intact: int | None, folder: Path) -> str:
    if intact is not None:
        return (
            f"backup {intact} is the newest in which it is undamaged: `hopyard restore {folder} --generation {intact}`"
        )
    none = "no older backup in this folder has it undamaged"
    if stream == _CLUSTER:
        return f"{none}; look in other folders of backups (`hopyard backup verify FOLDER`)"
    return (
        f"{none}; look in other folders of backups (`hopyard backup verify FOLDER`), or delete the experiment with "
        f"`hopyard rm --force {stream}`"
    )


def _newest_intact(target: Target, number: int, streams: Iterable[str]) -> dict[str, int]:
    """Return the newest generation before `number` in which a stream is intact, for each stream of which there is one."""
    wanted, found, read = set(streams), dict[str, int](), set[str]()
    for manifest in _older(target, number):
        sha256 = manifest.database_sha256
        if not wanted or sha256 in read:
            continue
        read.add(sha256)
        try:
            intact = (
                check_journal(target.database_path(sha256)).intact & wanted
                if has_database(target, sha256)
                else frozenset[str]()
            )
        except DataLoss:  # It has the schema of another version.
            continue
        found |= dict.fromkeys(intact, manifest.number)
        wanted -= intact
    return found


def _older(target: Target, number: int) -> list[BackupManifest]:
    """Return the readable manifests of the generations before `number`, newest first."""
    manifests, _ = readable_manifests(target, (one for one in target.numbers() if one < number), same_cluster=False)
    return manifests[::-1]
