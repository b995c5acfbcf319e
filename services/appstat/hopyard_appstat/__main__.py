"""Entry point of `python -m hopyard_appstat`: the same as `hopyard appstat`."""

import typer

from hopyard_appstat.command import command

if __name__ == "__main__":
    typer.run(command)
