"""The `hopyard` command. Only this package imports the packages of the extra `cli` (typer, rich)."""
