"""The id of the cluster to which a database and a store belong.

A cluster has a random id, which is drawn with its database. The store in the data folder, and the data folders of agents, repeat it. A
database that was lost, emptied or exchanged is therefore noticed before anything that another cluster made is deleted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hopyard._common.private_files import write_private
from hopyard.errors import Conflict

STORE: Final = "store"
"""Name of the folder in the data folder that contains the blobs, unless a URL names another store."""

CLUSTER_FILE: Final = "cluster.id"
"""Name of the file in the folder of a store that contains the id of its cluster."""

_REMEDY: Final = (
    "move the data directory away and restore a backup (`hopyard restore BACKUPS`), or name another data directory, or run "
    "`hopyard up --adopt` to let the snapshots and the code in the store belong to the cluster of this database"
)


def check_file(file: Path, store: Path) -> None:
    """Raise an error if the file of a SQLite database is missing or empty, and the store belongs to a cluster.

    Raises:
        Conflict: The database of the cluster is lost.
    """
    if not (file.exists() and file.stat().st_size):
        refuse_new_database(str(file), "is empty" if file.exists() else "is missing", store)


def refuse_new_database(database: str, state: str, store: Path) -> None:
    """Raise an error if a store belongs to a cluster, whose database is lost.

    Args:
        database: The database, for the message.
        state: What is wrong with it, as the predicate of a sentence: "is missing" or "is empty".
        store: The folder of the store.

    Raises:
        Conflict: The store belongs to a cluster.
    """
    if owner := store_owner(store):
        raise Conflict(f"the database {database} {state}, but the store {store} belongs to cluster {owner}; {_REMEDY}")


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
