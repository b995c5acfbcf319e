"""Alembic's migrations of the AppStat database. A new one: a file in `versions` that names the newest as its parent."""
