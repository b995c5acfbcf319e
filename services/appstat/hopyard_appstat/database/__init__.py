"""The database: connections, tables, queries, and the single writer with group commit."""
