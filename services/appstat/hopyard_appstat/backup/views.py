"""What clients see of generations and of their blobs."""

from __future__ import annotations

from hopyard._common.backup_results import Generation
from hopyard_appstat.backup.manifest import BackupManifest


def generation_of(manifest: BackupManifest) -> Generation:
    """Return the generation that a manifest describes."""
    return Generation(
        manifest.number,
        manifest.taken_at,
        manifest.cluster,
        manifest.database_bytes,
        len(manifest.blobs),
        manifest.blob_bytes,
    )


def lost_blob(sha256: str, reason: str) -> str:
    """Return the sentence about a blob that the cluster had lost before its backup."""
    return f"blob {sha256}: {reason}, so the backup does not have it; jobs that need it continue from an older snapshot"
