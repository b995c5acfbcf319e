"""Adds the first tables: epochs, streams, journal, experiments, jobs, statistics, blobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_ROW_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create the tables of epochs, streams, journal records, experiments, jobs, statistics and blobs."""
    op.create_table(
        "epochs",
        sa.Column("epoch", _ROW_ID, autoincrement=True, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("began_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("epoch", name="pk_epochs"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "streams",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("length", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_streams"),
    )
    op.create_table(
        "journal",
        sa.Column("stream", sa.Text, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("stream", "position", name="pk_journal"),
        sa.ForeignKeyConstraint(["stream"], ["streams.name"], name="fk_journal_stream"),
    )
    op.create_table(
        "experiments",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("ended_at", sa.Double, nullable=False),
        sa.Column("detail_json", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_experiments"),
    )
    op.create_index("ix_experiments_created_at_id", "experiments", ["created_at", "id"])
    op.create_table(
        "jobs",
        sa.Column("experiment", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("ordinal", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("detail_json", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("experiment", "id", name="pk_jobs"),
    )
    op.create_index("ix_jobs_experiment_ordinal_id", "jobs", ["experiment", "ordinal", "id"])
    op.create_table(
        "statistics",
        sa.Column("row", _ROW_ID, autoincrement=True, nullable=False),
        sa.Column("experiment", sa.Text, nullable=False),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("part", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("metrics", sa.Text, nullable=False),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("examples", sa.BigInteger, nullable=False),
        sa.Column("at_until", sa.Boolean, nullable=False),
        sa.Column("finished", sa.Boolean, nullable=False),
        sa.Column("in_force", sa.Text, nullable=True),
        sa.PrimaryKeyConstraint("row", name="pk_statistics"),
        sa.UniqueConstraint("experiment", "job", "position", "part", name="uq_statistics_experiment_job_position_part"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_statistics_experiment_row", "statistics", ["experiment", "row"])
    op.create_table(
        "blobs",
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_blobs"),
    )
    op.create_table(
        "blob_owners",
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("sha256", "owner", name="pk_blob_owners"),
    )


def downgrade() -> None:
    """Drop the tables that `upgrade` creates, and their data."""
    for table in ("blob_owners", "blobs", "statistics", "jobs", "experiments", "journal", "streams", "epochs"):
        op.drop_table(table)
