"""What Alembic runs: migrations on the connection that `hopyard_appstat.migrate` hands over."""

from __future__ import annotations

from alembic import context

from hopyard_appstat.database.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # SQLite changes a table by copying it; its DDL is transactional because the connection begins explicitly.
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
