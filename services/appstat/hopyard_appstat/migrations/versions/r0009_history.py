"""Adds the id of the cluster's history."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column. The history of a cluster that was never restored has the id of the cluster."""
    op.add_column("clusters", sa.Column("history", sa.Text, nullable=False, server_default=""))
    op.execute("UPDATE clusters SET history = id")


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("clusters", "history")
