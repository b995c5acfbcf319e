"""Adds the checksum of the last record to streams, and computes the checksums of all records."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from hopyard_appstat.database.record_chain import START, checksum

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_JOURNAL = sa.table(
    "journal", *(sa.column(name) for name in ("stream", "position", "at", "kind", "payload", "version", "checksum"))
)
_STREAMS = sa.table("streams", sa.column("name"), sa.column("head"))


def upgrade() -> None:
    """Add the column `head` of the streams, and compute the checksums from the present records."""
    op.add_column("streams", sa.Column("head", sa.Text, nullable=False, server_default=START))
    connection = op.get_bind()
    for stream in list(connection.scalars(sa.select(_STREAMS.c.name))):
        _compute(connection, stream)


def downgrade() -> None:
    """Drop the column `head` of the streams, and empty the checksums."""
    op.get_bind().execute(sa.update(_JOURNAL).values(checksum=""))
    op.drop_column("streams", "head")


def _compute(connection: sa.Connection, stream: str) -> None:
    previous, position = START, 0
    columns = _JOURNAL.c
    while True:
        query = sa.select(_JOURNAL).where(columns.stream == stream, columns.position > position)
        row = connection.execute(query.order_by(columns.position).limit(1)).mappings().one_or_none()
        if row is None:
            break
        previous, position = checksum(previous, row), row["position"]
        found = (columns.stream == stream, columns.position == position)
        connection.execute(sa.update(_JOURNAL).where(*found).values(checksum=previous))
    connection.execute(sa.update(_STREAMS).where(_STREAMS.c.name == stream).values(head=previous))
