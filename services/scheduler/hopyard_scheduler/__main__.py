"""Runs `hopyard scheduler` as `python -m hopyard_scheduler`."""

import typer

from hopyard_scheduler.command import command

if __name__ == "__main__":
    typer.run(command)
