"""Suggests commands and options for words that other tools use, by their meaning. Typer suggests those with a similar spelling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from typer.core import TyperGroup

_COMMANDS: Final[Mapping[str, str]] = {
    "status ps trials progress describe info": "hopyard experiments, hopyard jobs",
    "list ls queue": "hopyard experiments, hopyard jobs",
    "ui web gui dashboard top htop watch monitor attach live": "hopyard jobs --watch, hopyard nodes --watch",
    "show": "hopyard jobs, hopyard best, hopyard logs",
    "start": "hopyard run FILE, hopyard up",
    "submit create launch train search tune optimize fit execute exec sweep": "hopyard run FILE",
    "new generate": "hopyard init SCRIPT",
    "continue unpause unsuspend": "hopyard resume",
    "restart rerun": "hopyard resume, hopyard retry",
    "reupload upload send push": "hopyard resend",
    "suspend hold interrupt": "hopyard pause",
    "kill cancel abort terminate end": "hopyard stop",
    "delete remove del destroy": "hopyard rm",
    "clean cleanup prune purge": "hopyard gc",
    "log output tail stdout": "hopyard logs, hopyard logs --follow",
    "history journal": "hopyard events",
    "metrics scores leaderboard": "hopyard results, hopyard best",
    "params hyperparameters winner": "hopyard best",
    "graph chart draw": "hopyard plot, hopyard curve",
    "tensorboard mlflow wandb csv": "hopyard results --format FORMAT",
    "get fetch pull checkpoint snapshot snapshots model": "hopyard download",
    "dump save archive": "hopyard backup, hopyard export, hopyard download",
    "load": "hopyard import, hopyard restore",
    "serve server cluster daemon": "hopyard up",
    "worker workers node join slot slots gpu gpus": "hopyard agent, hopyard nodes",
    "connect address endpoint target token credentials login auth client clients grpc api": "hopyard connection",
    "config configure settings edit update": "hopyard set, hopyard init",
    "check test validate verify install": "hopyard doctor, hopyard conformance",
    "dry-run dryrun preview estimate": "hopyard plan",
    "policies generators predictors schedulers list-policies": "hopyard plugins",
    "version": "hopyard --version",
    "help": "hopyard --help",
}

MEANT_COMMANDS: Final[Mapping[str, str]] = {word: meant for words, meant in _COMMANDS.items() for word in words.split()}
"""Words that are no commands, each with the commands that may be meant, separated by commas."""

_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "workers num-workers jobs n-jobs parallel parallelism processes procs threads max-parallel": ("--slots",),
    "cuda device devices cuda-visible-devices": ("--gpus",),
    "address addr url endpoint scheduler master remote": ("--server",),
    "dir directory data-dir path workdir root": ("--data", "--folder"),
    "out output-file file dest to": ("--output", "--to"),
    "tail watch live": ("--follow", "--watch"),
    "epochs iterations steps max-epochs": ("--max-iterations",),
    "yes overwrite": ("--force",),
    "duration hours max-time": ("--time", "--timeout"),
}

MEANT_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    f"--{word}": meant for words, meant in _OPTIONS.items() for word in words.split()
}
"""Options that other tools have, each with those of Hopyard that may be meant. A command has only some of them."""


class CommandGroup(TyperGroup):
    """The command line `hopyard`. Its errors about unknown commands and options suggest what may be meant."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first argument names, as the base class does. If there is none, the usage error suggests one."""
        meant = MEANT_COMMANDS.get(args[0].lower())
        if meant is not None and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command '{args[0]}'. Did you mean: {meant}?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command, as the base class does. An error about an unknown option gets the options that may be meant."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            # Versions of typer have different classes for this error, with the same attributes.
            if getattr(error, "possibilities", ()) is None or getattr(error, "possibilities", ()) == []:
                error.possibilities = _meant_options(error)  # type: ignore[attr-defined]
            raise


def _meant_options(error: Any) -> list[str]:
    """Return the options of the command that may be meant by an unknown one."""
    command = getattr(error.ctx, "command", None)
    known = {name for parameter in getattr(command, "params", ()) for name in parameter.opts}
    return [name for name in MEANT_OPTIONS.get(error.option_name, ()) if name in known]
