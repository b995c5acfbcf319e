"""Entry point of `python -m hopyard_nodeagent`: the same as `hopyard agent`."""

import typer

from hopyard_nodeagent.command import command

if __name__ == "__main__":
    typer.run(command)
