"""Programs that use a client of a damaged cluster. Each runs in a process, so that damage cannot hang or end the benchmark.

    python session.py create DATA local|connect     creates the experiments, prints their ids when they are in the middle of their
                                                    training, and waits for the end of its input; then it pauses the experiment
                                                    "chain" and closes its client
    python session.py finish DATA local|connect     continues all experiments, and prints what was refused when each of them has
                                                    ended or is paused again
    python session.py read DATA                     prints the stored tables, and what `hopyard replay` says about each experiment

`local` starts a cluster with `Client.local`, `connect` uses the one that runs in DATA. The output is one line of JSON. An error of
`hopyard.errors` ends the program with one line on stderr and exit code 1, any other exception with a traceback.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from damage_cases.cluster import RELEASED
from damage_cases.specs import CHAIN, ENDED, LAST, SLOTS, TREE, spec
from damage_cases.tables import table
from hopyard.cli import main as command_line
from hopyard.client import Client
from hopyard.client.types import Experiment, ExperimentState
from hopyard.errors import HopyardError

POLL_SECONDS = 0.1
MIDDLE = {CHAIN: 10, TREE: 5}
"""The sum of the positions of all jobs of an experiment in the middle of its training, beyond which the training code holds them."""


def opened(data: str, how: str) -> Client:
    """Return a client of the cluster in a data directory, which `Client.local` starts if `how` is "local"."""
    return Client.local(data, slots=SLOTS) if how == "local" else Client(data=data)


def create(data: str, how: str, code: str) -> None:
    """Create the experiments, with the training code in the folder `code`."""
    with opened(data, how) as client:
        client.wait(client.create(spec(ENDED), code))
        for name in MIDDLE:
            client.create(spec(name), code)
        found = {one.name: one for one in client.experiments()}
        while any(sum(job.position for job in client.jobs(found[name])) < least for name, least in MIDDLE.items()):
            time.sleep(POLL_SECONDS)
        _print({name: one.id for name, one in found.items()})
        sys.stdin.read()
        client.pause(found[CHAIN])
        Path(os.environ[RELEASED]).touch()  # Only a unit that ends can be paused.
        while client.get(found[CHAIN]).state is not ExperimentState.PAUSED:
            time.sleep(POLL_SECONDS)


def finish(data: str, how: str) -> None:
    """Continue all experiments until each has ended or is paused again."""
    refused: dict[str, str] = {}
    resumed: set[str] = set()
    with opened(data, how) as client:
        while any([_continues(client, one, resumed, refused) for one in client.experiments()]):  # noqa: C419 - calls all
            time.sleep(POLL_SECONDS)
    _print({"refused": refused})


def _continues(client: Client, experiment: Experiment, resumed: set[str], refused: dict[str, str]) -> bool:
    """Resume an experiment that is paused and not in `resumed`; return whether it has neither ended nor is paused for good."""
    if experiment.state.ended or experiment.id in refused:
        return False
    if experiment.state is ExperimentState.PAUSED:
        if experiment.id in resumed:
            return False
        resumed.add(experiment.id)
        try:
            client.resume(experiment)
        except HopyardError as error:
            refused[experiment.id] = f"{type(error).__name__}: {error}"
            return False
    return True


def read(data: str) -> None:
    """Print the stored tables, and the outcome of `hopyard replay` for each experiment that existed before the damage."""
    found: dict[str, Any] = {"experiments": [], "replay": {}, "error": ""}
    try:
        with Client.stored(data) as client:
            found["experiments"] = [
                table(one, client.jobs(one), client.statistics(one)) for one in client.experiments()
            ]
    except HopyardError as error:
        found["error"] = f"{type(error).__name__}: {error}"
    for one in found["experiments"]:
        if one["name"] == LAST:
            continue
        found["replay"][one["name"]] = _command("replay", one["id"], "--data", data, "--json")
    _print(found)


def _command(*arguments: str) -> tuple[int, str, str]:
    """Return the exit code, the output and the errors of a command."""
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        code = command_line.run(list(arguments))
    return code, out.getvalue(), errors.getvalue()


def _print(value: object) -> None:
    print(json.dumps(value, default=str), flush=True)


def main(arguments: Sequence[str]) -> int:
    """Run one of the programs, and return its exit code."""
    action, *rest = arguments
    try:
        match action:
            case "create":
                create(*rest)
            case "finish":
                finish(*rest)
            case _:
                read(*rest)
    except HopyardError as error:
        print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
