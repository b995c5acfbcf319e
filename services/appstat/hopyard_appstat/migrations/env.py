"""Alembic's environment: runs the migrations on the connection that `hopyard_appstat.migrations.migrate` passes in."""

from __future__ import annotations

from alembic import context

from hopyard_appstat.database.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # SQLite supports few kinds of ALTER TABLE, so Alembic copies the table instead. DDL is transactional because
    # transactions begin explicitly.
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
