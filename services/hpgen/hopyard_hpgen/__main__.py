"""Entry point of `python -m hopyard_hpgen`: the same as `hopyard hpgen`."""

import typer

from hopyard_hpgen.command import command

if __name__ == "__main__":
    typer.run(command)
