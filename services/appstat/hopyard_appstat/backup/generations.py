"""The manifests in a target that can be read, and what is wrong with the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hopyard.errors import Conflict, DataLoss, NotFound
from hopyard_appstat.backup.files import hash_of
from hopyard_appstat.backup.manifest import BackupManifest
from hopyard_appstat.backup.target import Target

_FORGOTTEN: Final = (
    "`hopyard backup create --keep N` deletes nothing while it is among the newest N; a smaller N accepts its loss"
)


def named(numbers: Iterable[int]) -> str:
    """Return the name of one or more generations: `generation 1`, `generations 1, 2`."""
    found = [str(number) for number in numbers]
    return f"generation{'s' if len(found) > 1 else ''} {', '.join(found)}"


def has_database(target: Target, sha256: str) -> bool:
    """Return whether a target has an undamaged copy of a database. It reads the whole copy."""
    try:
        return hash_of(target.database_path(sha256)) == sha256
    except (FileNotFoundError, DataLoss):
        return False


def expected_numbers(target: Target) -> tuple[set[int], list[str]]:
    """Return the numbers of the generations that a target should have, and each damage of its head file in one sentence."""
    try:
        return {*target.expected(), *target.numbers()}, []
    except (DataLoss, Conflict) as error:
        return set(target.numbers()), [str(error)]


def readable_manifests(
    target: Target, numbers: Iterable[int], *, same_cluster: bool = True
) -> tuple[list[BackupManifest], list[str]]:
    """Return those of the manifests that can be read, and one sentence for each that is missing, damaged, or of another cluster.

    Args:
        target: The target.
        numbers: The numbers of the generations.
        same_cluster: Whether to compare the cluster with that in the head file, which must be undamaged.
    """
    manifests, damage = list[BackupManifest](), list[str]()
    for number in sorted(numbers):
        try:
            manifest = target.manifest(number)
            manifests.append(manifest)
            if same_cluster:
                target.check_cluster(manifest.cluster)
        except NotFound:
            path = target.manifest_path(number)
            damage.append(
                f"{path}: the manifest of generation {number} is missing, so it cannot be restored; {_FORGOTTEN}"
            )
        except DataLoss as error:
            damage.append(f"{error}; generation {number} cannot be restored; {_FORGOTTEN}")
        except Conflict as error:
            damage.append(str(error))
    return manifests, damage
