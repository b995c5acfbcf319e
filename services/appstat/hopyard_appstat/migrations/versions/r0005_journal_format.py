"""Adds the format version and the checksum of journal records."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns `version` and `checksum` to the journal.

    Existing records get the version 0 and an empty checksum, which mean that they have no version and no checksum.
    """
    op.add_column("journal", sa.Column("version", sa.Integer, nullable=False, server_default="0"))
    op.add_column("journal", sa.Column("checksum", sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    """Drop the columns `version` and `checksum` of the journal."""
    op.drop_column("journal", "checksum")
    op.drop_column("journal", "version")
