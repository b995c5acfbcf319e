"""The manifest of a generation: what one backup contains."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from hopyard.errors import DataLoss
from hopyard_appstat.backup.sealed_json import read_sealed, write_sealed


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """The content of one generation.

    Attributes:
        number: The number of the generation in its target: 1, 2, 3, ...
        taken_at: Time of the state of the database, in seconds since the Unix epoch.
        cluster: Id of the cluster.
        history: Id of the cluster's history (see `schema.clusters`).
        epoch: The newest epoch of a scheduler; 0: none.
        revision: Schema revision of the database.
        database_sha256: SHA-256 of the copy of the database.
        database_bytes: Size of the copy in bytes.
        blobs: Size in bytes of each blob, by its SHA-256.
        lost: Blobs that the database lists and the store did not have undamaged: the reason, by SHA-256. They are not in `blobs`.
        secrets: Content of the files in the folder `secrets`, by name.
    """

    number: int
    taken_at: float
    cluster: str
    history: str
    epoch: int
    revision: str
    database_sha256: str
    database_bytes: int
    blobs: dict[str, int]
    lost: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)

    @property
    def blob_bytes(self) -> int:
        """Total size of the blobs in bytes."""
        return sum(self.blobs.values())

    def write(self, path: Path) -> None:
        """Write the manifest atomically and durably. From then on, the generation exists."""
        write_sealed(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a manifest.

        Raises:
            FileNotFoundError: There is no such file.
            DataLoss: The file was changed.
            Conflict: The file has another format version.
        """
        try:
            return cls(**read_sealed(path))
        except TypeError as error:
            raise DataLoss(f"{path}: is damaged: it is not a manifest") from error
