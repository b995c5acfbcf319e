"""The `hopyard` command. Its extra dependencies (typer, rich) stay inside this package."""
