"""The tables of the database. A test checks that the migrations create the same tables."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

# All constraints have names, so that migrations can refer to them on every database.
metadata: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite increments a primary key automatically only if its type is INTEGER.
_ROW_ID: Final = BigInteger().with_variant(Integer, "sqlite")

clusters: Final = Table(
    "clusters",
    metadata,
    # The random id of the cluster, in one row.
    Column("id", Text, primary_key=True),
    # The id of the cluster's history: the id of the cluster, or a random id that the last restore from a backup made. It differs from
    # the one that agents have which ran on since the backup: this database lacks what they did since.
    Column("history", Text, nullable=False, server_default=""),
)

epochs: Final = Table(
    "epochs",
    metadata,
    Column("epoch", _ROW_ID, primary_key=True, autoincrement=True),
    Column("holder", Text, nullable=False),
    Column("began_at", Double, nullable=False),
    # AUTOINCREMENT: SQLite never reuses an epoch's number, even after rows are deleted.
    sqlite_autoincrement=True,
)

streams: Final = Table(
    "streams",
    metadata,
    Column("name", Text, primary_key=True),
    Column("length", BigInteger, nullable=False),
    # The checksum of the last record.
    Column("head", Text, nullable=False, server_default=""),
)

journal: Final = Table(
    "journal",
    metadata,
    Column("stream", Text, ForeignKey("streams.name"), nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    # The version of the journal format; 0: unknown, written before formats had versions.
    Column("version", Integer, nullable=False, server_default="0"),
    # See `record_chain`.
    Column("checksum", Text, nullable=False, server_default=""),
    PrimaryKeyConstraint("stream", "position"),
)

# Projections have no foreign keys: the scheduler decides their content and the order in which they arrive.
# `message` is the serialized message of an experiment or a job. The other columns repeat the fields by which rows are found.

experiments: Final = Table(
    "experiments",
    metadata,
    Column("id", Text, primary_key=True),
    # The number of its `ExperimentState`.
    Column("state", Integer, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("message", LargeBinary, nullable=False),
    Index(None, "created_at", "id"),
)

jobs: Final = Table(
    "jobs",
    metadata,
    Column("experiment", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("ordinal", BigInteger, nullable=False),
    Column("message", LargeBinary, nullable=False),
    PrimaryKeyConstraint("experiment", "id"),
    Index(None, "experiment", "ordinal", "id"),
)

statistics: Final = Table(
    "statistics",
    metadata,
    # Increases with each row in commit order; watchers use it as their cursor.
    Column("row", _ROW_ID, primary_key=True, autoincrement=True),
    Column("experiment", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("part", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    # JSON; values that are not finite are the strings "NaN", "Infinity" and "-Infinity", because JSON has no such numbers.
    Column("metrics", Text, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("at", Double, nullable=False),
    Column("examples", BigInteger, nullable=False),
    Column("at_until", Boolean, nullable=False),
    Column("finished", Boolean, nullable=False),
    # JSON as Python writes it (with NaN): the hyperparameters in force; null: the report had none.
    Column("in_force", Text, nullable=True),
    UniqueConstraint("experiment", "job", "position", "part"),
    Index(None, "experiment", "row"),
    sqlite_autoincrement=True,
)

# The search plan (see search_plan.py): its nodes, the segments of the trials' paths (stretches), and the trials' snapshots.

plan_nodes: Final = Table(
    "plan_nodes",
    metadata,
    Column("key", Text, primary_key=True),
    Column("root", Text, nullable=False),
    Column("parent", Text, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("values_json", Text, nullable=False),
    Index(None, "root", "start", "key"),
)

plan_stretches: Final = Table(
    "plan_stretches",
    metadata,
    Column("experiment", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("end", BigInteger, nullable=False),
    Column("node", Text, nullable=False),
    PrimaryKeyConstraint("experiment", "job", "start"),
    Index(None, "node"),
)

plan_snapshots: Final = Table(
    "plan_snapshots",
    metadata,
    Column("experiment", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("provider", Text, nullable=False),
    Column("owner", Text, nullable=False),
    PrimaryKeyConstraint("experiment", "job", "position"),
)

# Scaling profiles: the seconds that one unit of a training takes on a number of slots of one kind, as last measured.

scaling: Final = Table(
    "scaling",
    metadata,
    Column("training", Text, primary_key=True),
    Column("hardware", Text, primary_key=True),
    Column("slots", Integer, primary_key=True, autoincrement=False),
    Column("seconds", Double, nullable=False),
    Column("experiment", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("at", Double, nullable=False),
)

blobs: Final = Table(
    "blobs",
    metadata,
    Column("sha256", Text, primary_key=True),
    Column("size_bytes", BigInteger, nullable=False),
    # When an owner last stored or requested the blob, in seconds since the Unix epoch.
    Column("created_at", Double, nullable=False),
)

# The owners of blobs; a blob is deleted with its last owner.
blob_owners: Final = Table(
    "blob_owners",
    metadata,
    Column("sha256", Text, primary_key=True),
    Column("owner", Text, primary_key=True),
)

data_sets: Final = Table(
    "data_sets",
    metadata,
    Column("name", Text, primary_key=True),
    # Id of the request that registered the data set, to recognize a repeated request.
    Column("request_id", Text, nullable=False),
    Column("registered_at", Double, nullable=False),
)

data_partitions: Final = Table(
    "data_partitions",
    metadata,
    Column("data_set", Text, nullable=False),
    # Index of the partition in its data set, from 0.
    Column("ordinal", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    # Null: unknown.
    Column("examples", BigInteger, nullable=True),
    # Empty: only nodes have the partition.
    Column("url", Text, nullable=False),
    PrimaryKeyConstraint("data_set", "ordinal"),
)

data_replicas: Final = Table(
    "data_replicas",
    metadata,
    Column("data_set", Text, nullable=False),
    # Ordinal of the partition.
    Column("partition", Integer, nullable=False),
    Column("node", Text, nullable=False),
    Column("path", Text, nullable=False),
    PrimaryKeyConstraint("data_set", "partition", "node"),
)
