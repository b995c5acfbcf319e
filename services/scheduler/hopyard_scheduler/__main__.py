"""Entry point of `python -m hopyard_scheduler`, which is equivalent to `hopyard scheduler`."""

import typer

from hopyard_scheduler.command import command

if __name__ == "__main__":
    typer.run(command)
