"""Adds the id of the cluster."""

from __future__ import annotations

import uuid

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table with the id of the cluster, and draw the id."""
    table = op.create_table(
        "clusters", sa.Column("id", sa.Text, nullable=False), sa.PrimaryKeyConstraint("id", name="pk_clusters")
    )
    op.bulk_insert(table, [{"id": uuid.uuid4().hex}])


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("clusters")
