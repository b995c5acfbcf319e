"""Adds the table of scaling profiles."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table of scaling profiles."""
    op.create_table(
        "scaling",
        sa.Column("training", sa.Text, nullable=False),
        sa.Column("hardware", sa.Text, nullable=False),
        sa.Column("slots", sa.Integer, nullable=False),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("experiment", sa.Text, nullable=False),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("training", "hardware", "slots", name="pk_scaling"),
    )


def downgrade() -> None:
    """Drop the table of scaling profiles; later experiments measure the profiles again."""
    op.drop_table("scaling")
