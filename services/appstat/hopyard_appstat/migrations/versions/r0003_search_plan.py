"""Adds the tables of the search plan: nodes, the segments of trials in them, and snapshots."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables of the search plan."""
    op.create_table(
        "plan_nodes",
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("root", sa.Text, nullable=False),
        sa.Column("parent", sa.Text, nullable=False),
        sa.Column("start", sa.BigInteger, nullable=False),
        sa.Column("values_json", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_plan_nodes"),
    )
    op.create_index("ix_plan_nodes_root_start_key", "plan_nodes", ["root", "start", "key"])
    op.create_table(
        "plan_stretches",
        sa.Column("experiment", sa.Text, nullable=False),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("start", sa.BigInteger, nullable=False),
        sa.Column("end", sa.BigInteger, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("experiment", "job", "start", name="pk_plan_stretches"),
    )
    op.create_index("ix_plan_stretches_node", "plan_stretches", ["node"])
    op.create_table(
        "plan_snapshots",
        sa.Column("experiment", sa.Text, nullable=False),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("provider", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("experiment", "job", "position", name="pk_plan_snapshots"),
    )


def downgrade() -> None:
    """Drop the tables of the search plan; their data can be derived from the journal."""
    for table in ("plan_snapshots", "plan_stretches", "plan_nodes"):
        op.drop_table(table)
