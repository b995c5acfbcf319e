"""Adds the tables of the data set catalog: data sets, their partitions, and the replicas of the partitions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables of the data set catalog."""
    op.create_table(
        "data_sets",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("registered_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_data_sets"),
    )
    op.create_table(
        "data_partitions",
        sa.Column("data_set", sa.Text, nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("examples", sa.BigInteger, nullable=True),
        sa.Column("url", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("data_set", "ordinal", name="pk_data_partitions"),
    )
    op.create_table(
        "data_replicas",
        sa.Column("data_set", sa.Text, nullable=False),
        sa.Column("partition", sa.Integer, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("data_set", "partition", "node", name="pk_data_replicas"),
    )


def downgrade() -> None:
    """Drop the tables of the data set catalog, and their data."""
    for table in ("data_replicas", "data_partitions", "data_sets"):
        op.drop_table(table)
