"""The id of the cluster to which a database and a store belong.

A cluster has a random id, which is drawn with its database. The store in the data folder, and the data folders of agents, repeat it. A
database that was lost, emptied or exchanged is therefore noticed before anything that another cluster made is deleted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sqlalchemy import URL, Engine

from hopyard._common.private_files import write_private
from hopyard.errors import Conflict
from hopyard_appstat.migrate import is_empty

CLUSTER_FILE: Final = "cluster.id"
"""Name of the file in the folder of a store that contains the id of its cluster."""

_REMEDY: Final = (
    "restore the database from a backup, or name another data directory, or start once with --adopt to let the snapshots and the code "
    "in the store belong to the cluster of this database"
)


def check_new_database(engine: Engine, store: Path) -> None:
    """Raise an error if a database is new and the store belongs to a cluster already: the database of this cluster is lost.

    Args:
        engine: The database, in which nothing was created yet.
        store: The folder of the store.

    Raises:
        Conflict: The database is new, and the store belongs to a cluster. A new file of SQLite is not left behind.
    """
    owner = store_owner(store)
    file = _file_of(engine.url)
    if not owner or (file is not None and file.exists() and file.stat().st_size and not is_empty(engine)):
        return
    if file is None and not is_empty(engine):
        return
    what = "is missing" if file is not None and not file.exists() else "is empty"
    raise Conflict(
        f"the database {engine.url.render_as_string()} {what}, but the store {store} belongs to cluster {owner}; {_REMEDY}"
    )


def claim_store(store: Path, cluster: str, *, adopt: bool) -> None:
    """Record that a store belongs to a cluster, or raise an error if it belongs to another one.

    Args:
        store: The folder of the store.
        cluster: Id of the cluster.
        adopt: Whether a store of another cluster belongs to this one from now on.

    Raises:
        Conflict: The store belongs to another cluster, and `adopt` is False.
        OSError: The file cannot be written.
    """
    owner = store_owner(store)
    if owner == cluster:
        return
    if owner and not adopt:
        raise Conflict(f"the store {store} belongs to cluster {owner}, the database to cluster {cluster}; {_REMEDY}")
    store.mkdir(parents=True, exist_ok=True)
    write_private(store / CLUSTER_FILE, f"{cluster}\n".encode("ascii"))


def store_owner(store: Path) -> str:
    """Return the id of the cluster to which a store belongs; empty: it belongs to none yet."""
    try:
        return (store / CLUSTER_FILE).read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        return ""


def _file_of(url: URL) -> Path | None:
    """Return the file of a SQLite database; None: the database is on a server."""
    return Path(url.database or "") if url.get_backend_name() == "sqlite" else None
