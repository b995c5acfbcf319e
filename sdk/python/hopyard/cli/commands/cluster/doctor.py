"""The command `doctor`: checks this host and the installation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hopyard.cli.completion import complete_experiment
from hopyard.cli.options import Data, Json, Server

if TYPE_CHECKING:
    from rich.text import Text

    from hopyard.cli.doctor.check_result import Finding


def register(app: typer.Typer) -> None:
    """Add the command `doctor` to the command line `app`."""
    app.command(rich_help_panel="Set up")(doctor)


def doctor(
    experiments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[EXPERIMENT...]",
            help="With --rebuild: ids or names; without them all experiments.",
            autocompletion=complete_experiment,
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Skip the slow checks: all pages of the database, journal, torch and the self-test."
        ),
    ] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Write the rows of experiments, jobs and reports again from the journal.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --rebuild: change nothing; show what would be changed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --rebuild: write without asking.")] = False,
    server: Server = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Check this computer and the installation, with advice.

    It checks Python, cores, memory, GPUs, disk, limits, the network and installed packages, and runs a tiny search in a
    temporary folder. If a cluster has run in the data directory, it checks all pages of the database, reads the journal,
    which finds damaged records, and compares the rows of experiments, jobs and reports with it. It names snapshots in the
    folders of agents that belong to another cluster. It also checks the cluster at --server, or the one that serves the data
    directory, and compares the clocks. Exit code 1 if something that Hopyard needs
    is missing or has a problem; missing optional parts are no failure.

    `--rebuild` does none of this. It writes the rows of EXPERIMENT..., or of all experiments, again from the journal, where they
    differ from it. It shows the differences and asks first. No cluster may run in the data directory.

    **Examples:** `hopyard doctor`, `hopyard doctor --quick --json`, `hopyard doctor --server gpu1:4650`, `hopyard doctor --rebuild
    --dry-run`
    """
    from hopyard.cli.connect import choose
    from hopyard.cli.doctor.rebuild import rebuild_rows
    from hopyard.cli.errors import EXIT_FAILED, WrongUse
    from hopyard.cli.output import emit, emit_json, say

    address, folder = choose(server, data)
    if rebuild:
        if address is not None:
            raise WrongUse("--rebuild works on a data directory in which no cluster runs: give --data, not --server")
        raise typer.Exit(rebuild_rows(folder, experiments or [], dry_run=dry_run, yes=yes, json=json))
    if experiments or dry_run or yes:
        raise WrongUse("EXPERIMENT, --dry-run and --yes belong to --rebuild; give that, too")
    found: list[Finding] = []
    for finding in _look(address, folder, quick):
        found.append(finding)
        if not json:
            emit(_shown(finding))
    failed = [one.name for one in found if one.fails]
    if json:
        emit_json({"ok": not failed, "findings": found})
    elif failed:
        say(f"error: failed checks: {', '.join(failed)}")
    else:
        say("all needed checks passed")
    if failed:
        raise typer.Exit(EXIT_FAILED)


def _look(address: str | None, data: Path, quick: bool) -> Iterator[Finding]:
    """Run the checks and yield the result of each as soon as it is known, the quick checks first.

    Args:
        address: Address of the scheduler of a cluster to check; None: check the one that serves the data directory, if any.
        data: The data directory of the cluster on this computer.
        quick: Whether to omit the slow checks: all pages of the database, the journal, torch and the self-test.
    """
    import asyncio

    from hopyard.cli.doctor import agents, cluster, database, disk, host, journal, packages
    from hopyard.client.local_cluster.data_dir_lock import has_data

    for look in (
        host.python,
        host.cores,
        host.memory,
        host.shared_memory,
        host.gpus,
        host.limits,
        host.sockets,
        host.loopback,
        host.criu,
    ):
        yield look()
    yield disk.data_folder(data)
    yield from disk.disk(data)
    yield from agents.snapshots(data)
    extras = packages.extras()
    yield from extras
    if address is not None:
        yield from asyncio.run(cluster.server(address))
    elif served := disk.served_at(data):
        yield from asyncio.run(cluster.server(served, data))
    if quick:
        if address is None and has_data(data):
            yield database.files(data)
        return
    if address is None and has_data(data):
        pages = database.pages(data)
        yield pages
        readable = not pages.fails
    else:
        readable = address is not None
    if readable:
        yield from asyncio.run(journal.journal(address, data))
        yield from asyncio.run(database.rows(address, data))
    yield packages.torch()
    if not any(one.fails for one in extras):
        yield asyncio.run(cluster.self_test())


def _shown(finding: Finding) -> Text:
    """Format the result of a check as one line, followed by a line with its advice, if any."""
    from rich.text import Text

    from hopyard.cli.doctor.check_result import Health

    looks = {Health.OK: ("✓", "green"), Health.MISSING: ("·", "yellow"), Health.PROBLEM: ("!", "bold red")}
    mark, style = looks[finding.health]
    line = Text.assemble((f"{mark} ", style), (f"{finding.name:<19} ", "bold"), finding.detail)
    if finding.health is not Health.OK:
        line.append(f"  ({finding.health.value}{', needed' if finding.needed else ''})", style)
    if finding.advice:
        line.append(f"\n    {finding.advice}", "dim")
    return line
