"""The plugin `appstat` of the entry-point group `hopyard.backups`, by which the command line makes and restores backups."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hopyard._common.backup_results import BackupResult, Listing, Restoration, Verification
from hopyard_appstat.backup.create import create
from hopyard_appstat.backup.generations import expected_numbers, readable_manifests
from hopyard_appstat.backup.restore import restore
from hopyard_appstat.backup.target import Target
from hopyard_appstat.backup.verify import verify
from hopyard_appstat.backup.views import generation_of


class AppStatBackups:
    """Makes, reads and restores backups of AppStat's data. Implements `hopyard._common.backup_results.Backups`."""

    def create(self, data: Path, target: Path, keep: int | None, note: Callable[[str], None]) -> BackupResult:
        """Add a backup of a data directory to a folder of backups."""
        return create(data, target, keep, note)

    def generations(self, target: Path) -> Listing:
        """Return the generations in a folder of backups, oldest first, and what is damaged."""
        with Target.open(target) as opened:
            numbers, damage = expected_numbers(opened)
            manifests, further = readable_manifests(opened, numbers, same_cluster=not damage)
        return Listing(tuple(map(generation_of, manifests)), (*damage, *further))

    def verify(self, target: Path, number: int | None, note: Callable[[str], None]) -> Verification:
        """Read everything in a folder of backups, or what one generation needs, and compare all checksums."""
        return verify(target, number, note)

    def restore(
        self,
        target: Path,
        data: Path,
        *,
        number: int | None,
        as_copy: bool,
        new_tokens: bool,
        force: bool,
        note: Callable[[str], None],
    ) -> Restoration:
        """Make a new data directory of a generation."""
        return restore(target, data, number=number, as_copy=as_copy, new_tokens=new_tokens, force=force, note=note)
