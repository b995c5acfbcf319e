"""Alembic migrations of the AppStat database. A new migration is a file in `versions` whose parent is the newest revision."""
