"""The tables. The migrations make them; a test holds the two together."""

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

# Names for all constraints, so that migrations can speak of them on every database.
metadata: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# Only this type rises by itself in SQLite.
_ROW_ID: Final = BigInteger().with_variant(Integer, "sqlite")

epochs: Final = Table(
    "epochs",
    metadata,
    Column("epoch", _ROW_ID, primary_key=True, autoincrement=True),
    Column("holder", Text, nullable=False),
    Column("began_at", Double, nullable=False),
    # An epoch's number is never given twice, whatever is deleted.
    sqlite_autoincrement=True,
)

streams: Final = Table(
    "streams",
    metadata,
    Column("name", Text, primary_key=True),
    Column("length", BigInteger, nullable=False),
)

journal: Final = Table(
    "journal",
    metadata,
    Column("stream", Text, ForeignKey("streams.name"), nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    # The version of the journal format; 0: the writer named none.
    Column("version", Integer, nullable=False, server_default="0"),
    # Empty: the record has none.
    Column("checksum", Text, nullable=False, server_default=""),
    PrimaryKeyConstraint("stream", "position"),
)

# The projections have no foreign keys between them: they say what the scheduler says, in the order in which it says it.

experiments: Final = Table(
    "experiments",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("ended_at", Double, nullable=False),
    Column("detail_json", Text, nullable=False),
    Index(None, "created_at", "id"),
)

jobs: Final = Table(
    "jobs",
    metadata,
    Column("experiment", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("ordinal", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("detail_json", Text, nullable=False),
    PrimaryKeyConstraint("experiment", "id"),
    Index(None, "experiment", "ordinal", "id"),
)

statistics: Final = Table(
    "statistics",
    metadata,
    # Rises with every row in the order of the commits: a watcher's cursor.
    Column("row", _ROW_ID, primary_key=True, autoincrement=True),
    Column("experiment", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("part", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    # JSON; what is not finite stands as "NaN", "Infinity", "-Infinity", which plain JSON numbers cannot say.
    Column("metrics", Text, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("at", Double, nullable=False),
    Column("examples", BigInteger, nullable=False),
    Column("at_until", Boolean, nullable=False),
    Column("finished", Boolean, nullable=False),
    # JSON as Python writes it (with NaN); null: the report did not echo any.
    Column("in_force", Text, nullable=True),
    UniqueConstraint("experiment", "job", "position", "part"),
    Index(None, "experiment", "row"),
    sqlite_autoincrement=True,
)

# The search plan: nodes keyed by what they train, the trials that pass through them, and what was saved of these.

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

# Scaling profiles: how long a unit of a training takes on so many slots of one kind, as measured last.

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
    # When it was put, or asked for by an owner, last.
    Column("created_at", Double, nullable=False),
)

# Who needs a blob: it is deleted with its last owner.
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
    # Of the request that registered it, so that its repetition is known.
    Column("request_id", Text, nullable=False),
    Column("registered_at", Double, nullable=False),
)

data_partitions: Final = Table(
    "data_partitions",
    metadata,
    Column("data_set", Text, nullable=False),
    # Their order within the data set, from 0.
    Column("ordinal", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    # Null: not known.
    Column("examples", BigInteger, nullable=True),
    # Empty: it lies on nodes only.
    Column("url", Text, nullable=False),
    PrimaryKeyConstraint("data_set", "ordinal"),
)

data_replicas: Final = Table(
    "data_replicas",
    metadata,
    Column("data_set", Text, nullable=False),
    # The partition's ordinal.
    Column("partition", Integer, nullable=False),
    Column("node", Text, nullable=False),
    Column("path", Text, nullable=False),
    PrimaryKeyConstraint("data_set", "partition", "node"),
)
