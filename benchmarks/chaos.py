"""Does a cluster lose, double or change a single position while everything that can fail fails?

    python benchmarks/chaos.py [--minutes 60] [--seed 1] [--only asha,mop] [--rounds N] [--length 60] [--gap 2]
                               [--keep DIR] [--json FILE]

Each round runs one small search (`disturbance.searches`: all built-in policies, gangs, a study, stage trees, models that hop over
partitions, and a policy in a process of its own) on two agents, behind proxies on all connections between services, on Unix sockets
or on TCP. For `--length` seconds, a schedule that is drawn with a seed kills and stops (SIGSTOP) the scheduler, AppStat, hpgen, agents,
training processes and policy processes, and drops, delays, cuts and half-closes connections. A disturbance lasts up to 20 s, which is
longer than the lease of a node.

A training program computes a chain of hashes and nothing else (`disturbance.program`). After the round, the chain is checked at
every position of every job: nothing may be wrong, doubled or missing. The final table must equal that of the undisturbed search. The
searches for which it may differ are listed with the reason; for them, each job must equal its configuration trained alone. `hopyard
replay` must make the same decisions, all services must end in order, and no process may be left. No run may count as a failure of the
program, no node may be lost while nothing disturbs its agent, and no log of a service may have a traceback.

A finding has the command that repeats its round. The data of such a round are kept in `--keep`, by default in a temporary folder. The
exit code is 1 if there are findings.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from disturbance.schedule import Disturbance, schedule
from disturbance.searches import PARTITIONS, SEARCHES, Search, register_data, write_code, write_spec
from disturbance.services import AGENTS, LINKS, PEERS, POLICY, RUNNER, SERVICES, SLOTS, Cluster
from disturbance.units import events_of, units_of, wrong_hops
from disturbance.verdict import Reports, Row, Verdict, difference, table
from figures.frame import host
from figures.timing import journal
from observation.service_logs import tracebacks

from hopyard._net.auth.secrets_folder import SECRETS
from hopyard.client import AsyncClient
from hopyard.client.types import Experiment, ExperimentState
from hopyard.errors import HopyardError
from hopyard.study import AsyncStudy

PACE_RANGE: Final = (0.02, 1.0)
"""Least and most seconds of a unit."""

BEGIN_SECONDS: Final = 60.0
"""Seconds after the creation of a search within which its training must begin."""

RECOVERY_SECONDS: Final = 60.0
"""Seconds after the disturbances within which all services must serve again."""

REST_SECONDS: Final = 240.0
"""Seconds after the disturbances within which a search must end."""

REPLAY_SECONDS: Final = 240.0
"""Seconds within which a replay must end."""

CHECK_SECONDS: Final = 360.0
"""Seconds within which the whole check must end."""

EXIT_SECONDS: Final = 10.0
"""Seconds after the end of a cluster within which its processes must have ended."""

PATIENCE: Final = 600.0
"""Seconds for which a client repeats a call. Like all limits above, it is multiplied by `Settings.stretch`."""

ENOUGH: Final = "enough"
"""The file whose existence lets the program train at full speed."""

EXIT_INTERRUPTED: Final = 130
_POLL: Final = 0.3


@dataclass(frozen=True, slots=True)
class Trained:
    """What a search has recorded.

    Attributes:
        state: State of the experiment, with its reason.
        table: The final table.
        verdict: The result of the check of every position.
        runs: Number of runs.
        lost: Number of nodes that the experiment lost because their lease ended.
        unexplained: Those of them, with the time, whose agent and connection to the scheduler were not disturbed.
        failures: Number of runs that were counted as failures of the program.
        equal: Whether a replay makes the same decisions.
    """

    state: str
    table: list[Row]
    verdict: Verdict
    runs: int
    lost: int
    unexplained: list[str]
    failures: int
    equal: bool


@dataclass(slots=True)
class Round:
    """The result of a round.

    Attributes:
        search: Name of the search.
        seed: Seed of the schedule.
        transport: "unix" or "tcp".
        seconds: Duration with the start of the cluster and all checks.
        disturbed: Seconds from the first training to the last disturbance.
        planned: Number of disturbances in the schedule.
        counts: Number of disturbances by kind and target.
        missed: Number of disturbances for which there was no process.
        restarts: Number of restarts by service.
        lost: Number of lost nodes.
        runs: Number of runs.
        positions: Number of reports that were checked.
        wrong: Number of wrong reports; `doubled`, `missing`: of doubled and missing ones.
        doubled: See above.
        missing: See above.
        calls_failed: Number of calls of the client that ended with an error, and were repeated.
        findings: What was wrong; empty: nothing.
        repeat: The command that repeats this round.
        kept: The folder with the data of a round that has findings.
    """

    search: str
    seed: int
    transport: str
    repeat: str
    seconds: float = 0.0
    disturbed: float = 0.0
    planned: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    missed: int = 0
    restarts: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    runs: int = 0
    positions: int = 0
    wrong: int = 0
    doubled: int = 0
    missing: int = 0
    calls_failed: int = 0
    findings: list[str] = field(default_factory=list)
    kept: str = ""


class SearchRun:
    """Runs one search on a cluster, from its creation to the checks.

    Args:
        search: The search.
        name: Name of the search.
        cluster: The cluster, which has started.
        folder: Folder for its code and data.
        stretch: By how much limits are longer than usual.

    Attributes:
        over: Set when the experiment has ended.
        training: Set when something has been trained.
        failed: Number of calls that ended with an error, and were repeated.
    """

    def __init__(self, search: Search, name: str, cluster: Cluster, folder: Path, stretch: float) -> None:
        self.search = search
        self.name = name
        self.over = asyncio.Event()
        self.training = asyncio.Event()
        self.failed = 0
        self._cluster = cluster
        self._folder = folder
        self._stretch = stretch
        self._answers: list[Row] = []

    async def run(self, client: AsyncClient) -> Experiment:
        """Run the search to its end, and return the experiment.

        Raises:
            HopyardError: It could not be created.
        """
        code = write_code(self._folder / "code")
        if self.search.hops:
            await register_data(client, self._folder / "partitions")
        file = write_spec(self.search, self.name, code)
        try:
            if self.search.study:
                return await self._study(client, file)
            return await self._ended(client, (await client.create(file)).id)
        finally:
            self.over.set()

    async def _ended(self, client: AsyncClient, experiment: str) -> Experiment:
        while True:
            try:
                found = await client.get(experiment)
                if found.jobs.get("RUNNING"):
                    self.training.set()
                if found.state.ended:
                    return found
            except HopyardError:
                self.failed += 1
            await asyncio.sleep(_POLL)

    async def _study(self, client: AsyncClient, file: Path) -> Experiment:
        """Halve 32 configurations by requests. The requested results do not depend on the order of the answers."""
        async with await AsyncStudy(client).create(file, idle=PATIENCE * self._stretch) as study:
            experiment = study.experiment.id
            watch = asyncio.create_task(self._ended(client, experiment))  # It sets `training`.
            try:
                rng = random.Random(7)
                chosen: list[Mapping[str, Any]] = [study.space.sample(rng) for _ in range(32)]
                for position in (10, 20, 40, self.search.length):
                    answers = await study.wait_all([study.start(each, position) for each in chosen])
                    self._answers += [
                        (repr(dict(one.configuration)), position, one.value.hex(), len(one.curve)) for one in answers
                    ]
                    chosen = [one.configuration for one in study.ranked(answers)[: len(answers) // 2]]
            finally:
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)
        return await self._ended(client, experiment)

    async def check(self, client: AsyncClient, experiment: Experiment) -> Trained:
        """Read what was recorded, and check it."""
        jobs = list(await client.jobs(experiment.id))
        statistics = await client.statistics(experiment.id)
        reports = Reports(self.search, jobs, statistics)
        verdict = reports.check()
        if self.search.hops:
            units = units_of(events_of(self._cluster.data / "appstat.sqlite", experiment.id))
            for text in wrong_hops(units, jobs, statistics, self.search.length, PARTITIONS):
                verdict.wrong += 1
                verdict.say(text)
        lost = [
            (event["node"], at)
            for at, kind, event in journal(self._cluster.data / "appstat.sqlite")
            if kind == "NodeLost"
        ]
        return Trained(
            state=f"{experiment.state.value}: {experiment.reason}",
            table=sorted(self._answers) if self.search.study else table(reports, jobs),
            verdict=verdict,
            runs=sum(job.attempt for job in jobs),
            lost=len(lost),
            unexplained=[f"{node} at {at:.1f}" for node, at in lost if not self._cluster.counts.explains(node, at)],
            failures=sum(job.failures for job in jobs),
            equal=await self._replayed(experiment),
        )

    async def _replayed(self, experiment: Experiment) -> bool:
        tokens = {"HOPYARD_USER_TOKEN_FILE": str(self._cluster.data / SECRETS / "user.token")}
        command = ("replay", experiment.id, "--server", self._cluster.server, "--json")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hopyard.cli.main", *command),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **tokens},
            cwd=self._folder / "code",  # A policy of the experiment's code is imported from there.
        )
        try:
            async with asyncio.timeout(REPLAY_SECONDS * self._stretch):
                out, errors = await process.communicate()
        except TimeoutError:
            out, errors = b"", f"not ended after {REPLAY_SECONDS * self._stretch:g} s\n".encode()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        (self._folder / "replay.json").write_bytes(out + errors)
        return process.returncode == 0 and bool(json.loads(out)["decisions_equal"])


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of all rounds.

    Attributes:
        length: Seconds of disturbances.
        gap: Mean seconds between two of them.
        keep: Where data are kept.
        stretch: By how much leases, disturbances and limits are longer than usual, at least 1; for slow machines.
    """

    length: float
    gap: float
    keep: Path
    stretch: float = 1.0


class Bench:
    """Runs rounds, each compared with the undisturbed search, which is run once for each search."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._references: dict[str, Trained] = {}

    async def round(self, name: str, seed: int) -> Round:
        """Run one round."""
        began = time.monotonic()
        transport = random.Random(f"transport {seed}").choice(("unix", "tcp"))
        length, gap = self._settings.length, self._settings.gap
        repeat = f"python benchmarks/chaos.py --only {name} --seed {seed} --rounds 1 --length {length:g} --gap {gap:g}"
        row = Round(name, seed, transport, repeat)
        folder = self._settings.keep / f"{name}-{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            reference = self._references.get(name) or await self._undisturbed(name, row)
            if reference is not None:
                self._references[name] = reference
                await self._disturbed(row, folder, reference)
        except Exception as error:  # noqa: BLE001 - A round that ends with an error is a finding, and the others follow.
            row.findings.append(f"{type(error).__name__}: {error}")
        row.seconds = time.monotonic() - began
        if row.findings:
            row.kept = str(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
        return row

    async def _undisturbed(self, name: str, row: Round) -> Trained | None:
        """Return what the search records without disturbances; None, with a finding, if that is wrong already."""
        folder = self._settings.keep / f"{name}-undisturbed"
        shutil.rmtree(folder, ignore_errors=True)
        found = await self._searched(name, folder, row, [], pace=0.0)
        if row.findings:
            row.findings.insert(0, f"undisturbed, in {folder}:")
            return None
        shutil.rmtree(folder)
        return found

    async def _disturbed(self, row: Round, folder: Path, reference: Trained) -> None:
        search = SEARCHES[row.search]
        least, most = PACE_RANGE
        slots = SLOTS * len(AGENTS)
        pace = min(most, max(least, self._settings.length * slots / max(1, reference.verdict.positions)))
        processes = [*SERVICES, RUNNER, *([POLICY] if search.processes else [])]
        links = LINKS if row.transport == "tcp" else (*LINKS, *PEERS)
        settings = self._settings
        plan = schedule(row.seed, settings.length, processes, links, settings.gap, settings.stretch)
        row.planned = len(plan)
        _write(folder / "schedule.txt", plan)
        found = await self._searched(row.search, folder, row, plan, pace)
        if found is not None and not search.varies and (text := difference(reference.table, found.table)):
            row.findings.append(text)

    async def _searched(
        self, name: str, folder: Path, row: Round, plan: Sequence[Disturbance], pace: float
    ) -> Trained | None:
        """Run a search in a cluster for it only, and add what was done and found to the row."""
        environment = {
            "CHAOS_PACE": f"{pace:.4f}",
            "CHAOS_LENGTH": str(SEARCHES[name].length),
            "CHAOS_ENOUGH": str(folder / ENOUGH),
            "PYTHONPATH": _python_path(),
        }
        stretch = self._settings.stretch
        cluster = Cluster(folder / "data", tcp=row.transport == "tcp", environment=environment, stretch=stretch)
        trained = None
        try:
            async with cluster:
                trained = await self._run_search(name, folder, row, plan, cluster)
        finally:
            row.findings += cluster.exits
            row.findings += await asyncio.to_thread(cluster.processes.left, EXIT_SECONDS * stretch)
            row.findings += map(str, tracebacks((cluster.data / "logs").glob("*.log")))
            _write(folder / "done.txt", [*cluster.counts.done, *cluster.notes])
        row.counts += cluster.counts.kinds
        row.missed += cluster.counts.missed
        if plan:
            row.restarts = cluster.counts.restarts
        return trained

    async def _run_search(
        self, name: str, folder: Path, row: Round, plan: Sequence[Disturbance], cluster: Cluster
    ) -> Trained | None:
        """Run a search in a running cluster, disturb it, and check it; None: it has not begun, continued or ended in time."""
        stretch = self._settings.stretch
        token = (cluster.data / SECRETS / "user.token").read_text().strip()
        async with AsyncClient(cluster.server, token=token, patience=PATIENCE * stretch) as client:
            search_run = SearchRun(SEARCHES[name], name, cluster, folder, stretch)
            running = asyncio.create_task(search_run.run(client))
            try:
                if not await _first(running, search_run.training, BEGIN_SECONDS * stretch):
                    row.findings.append(
                        f"nothing is trained after {BEGIN_SECONDS * stretch:g} s: {await _state(client)}"
                    )
                    return None
                began = time.monotonic()
                await cluster.disturb(plan, search_run.over)
                row.disturbed += time.monotonic() - began
                await cluster.calm()
                if absent := await cluster.recovered(RECOVERY_SECONDS * stretch):
                    seconds = f"{RECOVERY_SECONDS * stretch:g} s after the last disturbance"
                    row.findings.append(f"{', '.join(absent)}: not serving {seconds}")
                    return None
                _write(folder / ENOUGH, [])
                if not await _first(running, search_run.over, REST_SECONDS * stretch):
                    seconds = f"{REST_SECONDS * stretch:g} s after the last disturbance"
                    row.findings.append(f"not ended {seconds}: {await _state(client)}")
                    return None
                experiment = await running
            finally:
                row.calls_failed += search_run.failed
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            try:
                async with asyncio.timeout(CHECK_SECONDS * stretch):
                    trained = await search_run.check(client, experiment)
            except TimeoutError:
                row.findings.append(f"not checked after {CHECK_SECONDS * stretch:g} s")
                return None
            _judge(trained, row, disturbed=bool(plan))
            return trained


def _write(file: Path, lines: Sequence[object]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines))


def _python_path() -> str:
    """Return the search path of this process, so that the services are of the same tree."""
    return os.pathsep.join(path for path in sys.path if path)


async def _first(running: asyncio.Task[Any], event: asyncio.Event, limit: float) -> bool:
    """Wait at most `limit` seconds until an event is set or a task has ended; return whether one of both is so."""
    waiting = asyncio.create_task(event.wait())
    done, _ = await asyncio.wait((running, waiting), timeout=limit, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return bool(done)


async def _state(client: AsyncClient) -> str:
    """Return the states of all experiments and jobs that have not ended."""
    try:
        async with asyncio.timeout(20.0):
            said = []
            for one in await client.experiments():
                jobs = [
                    f"{job.id} {job.state.value} {job.reason}"
                    for job in await client.jobs(one.id)
                    if not job.state.ended
                ]
                said.append(f"{one.id} {one.state.value} {one.reason} {one.jobs}; {'; '.join(jobs)}")
            return " | ".join(said)
    except (HopyardError, TimeoutError) as error:
        return f"the cluster does not answer: {error}"


def _judge(trained: Trained, row: Round, *, disturbed: bool) -> None:
    """Add what a search recorded to the row, and what is wrong with it as findings."""
    verdict = trained.verdict
    if not trained.state.startswith(ExperimentState.COMPLETED.value):
        row.findings.append(trained.state)
    if not verdict.ok:
        row.findings.append(f"{verdict.wrong} wrong, {verdict.doubled} doubled, {verdict.missing} missing")
        row.findings += verdict.examples
    if not trained.equal:
        row.findings.append("the replay differs or fails: see replay.json")
    if trained.unexplained:
        row.findings.append(f"leases were lost although nothing disturbed the nodes: {', '.join(trained.unexplained)}")
    if trained.failures:
        row.findings.append(f"{trained.failures} runs count as failures of the program")
    row.wrong, row.doubled = row.wrong + verdict.wrong, row.doubled + verdict.doubled
    row.missing, row.positions = row.missing + verdict.missing, row.positions + verdict.positions
    if disturbed:
        row.lost, row.runs = trained.lost, trained.runs


# ------------------------------------------------------------------------------------------------------------- the report


def summary(rounds: Sequence[Round]) -> list[dict[str, Any]]:
    """Return a row for each search, in the order of the searches, and one for all."""
    named = [(name, [one for one in rounds if one.search == name]) for name in SEARCHES]
    rows = [(name, those) for name, those in named if those]
    return [_summed(name, those) for name, those in [*rows, ("all", list(rounds))]]


def _summed(name: str, rounds: Sequence[Round]) -> dict[str, Any]:
    counts: Counter[str] = sum((one.counts for one in rounds), Counter())
    kinds = Counter[str]()
    for what, number in counts.items():
        kinds[what.partition(" ")[0]] += number
    return {
        "search": name,
        "rounds": len(rounds),
        "disturbed_seconds": sum(one.disturbed for one in rounds),
        "disturbances": dict(kinds),
        "restarts": sum(sum(one.restarts.values()) for one in rounds),
        "lost_leases": sum(one.lost for one in rounds),
        "runs": sum(one.runs for one in rounds),
        "positions": sum(one.positions for one in rounds),
        "wrong": sum(one.wrong for one in rounds),
        "doubled": sum(one.doubled for one in rounds),
        "missing": sum(one.missing for one in rounds),
        "findings": sum(bool(one.findings) for one in rounds),
        "table": "" if name == "all" else (SEARCHES[name].varies or "equal to the undisturbed search"),
    }


_KINDS: Final = ("kill", "stop", "drop", "delay", "cut", "half_close")


def show(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as a table."""
    head = f"{'search':<16}{'rounds':>7}{'s':>6}" + "".join(f"{kind:>11}" for kind in _KINDS)
    lines = [
        head
        + f"{'restarts':>9}{'lost':>5}{'runs':>6}{'positions':>10}{'wrong':>6}{'doubled':>8}{'missing':>8}{'bad':>4}"
    ]
    for row in rows:
        counts = "".join(f"{row['disturbances'].get(kind, 0):>11}" for kind in _KINDS)
        lines.append(
            f"{row['search']:<16}{row['rounds']:>7}{row['disturbed_seconds']:>6.0f}{counts}{row['restarts']:>9}{row['lost_leases']:>5}"
            f"{row['runs']:>6}{row['positions']:>10}{row['wrong']:>6}{row['doubled']:>8}{row['missing']:>8}{row['findings']:>4}"
        )
    lines += ["", "bad: rounds with findings. The final table equals that of the undisturbed search, except:"]
    lines += [f"  {name}: {search.varies}" for name, search in SEARCHES.items() if search.varies]
    return "\n".join(lines)


def say(row: Round) -> None:
    """Print one line for a round, and its findings."""
    counts, restarts = sum(row.counts.values()), sum(row.restarts.values())
    sys.stdout.write(
        f"{row.search} (seed {row.seed}, {row.transport}): {row.seconds:.0f} s, {counts} disturbances, {restarts} restarts, "
        f"{row.lost} lost leases, {row.runs} runs, {row.positions} positions: {'FINDINGS' if row.findings else 'ok'}\n"
    )
    for text in row.findings:
        sys.stdout.write(f"    {text}\n")
    if row.findings:
        sys.stdout.write(f"    repeat it: {row.repeat}\n    its data: {row.kept}\n")
    sys.stdout.flush()


async def run(given: argparse.Namespace, rounds: list[Round]) -> None:
    """Run rounds until the time is over, or as many as requested, and append them to `rounds`."""
    names = given.only or list(SEARCHES)
    bench = Bench(Settings(given.length, given.gap, given.keep))
    end = time.monotonic() + 60 * given.minutes
    while len(rounds) < given.rounds if given.rounds else time.monotonic() < end:
        number = len(rounds)
        rounds.append(await bench.round(names[number % len(names)], given.seed + number))
        say(rounds[-1])
        if given.json:
            given.json.write_text(json.dumps({"host": host(), **document(given, rounds)}, indent=1) + "\n")


def document(given: argparse.Namespace, rounds: Sequence[Round]) -> dict[str, Any]:
    """Return the figures of all rounds so far."""
    counts: Counter[str] = sum((one.counts for one in rounds), Counter())
    return {
        "seed": given.seed,
        "length": given.length,
        "gap": given.gap,
        "disturbances": dict(sorted(counts.items())),
        "searches": summary(rounds),
        "rounds": [{each.name: getattr(one, each.name) for each in fields(one)} for one in rounds],
    }


def _searches(given: str) -> list[str]:
    names = given.split(",")
    if unknown := sorted(set(names) - set(SEARCHES)):
        raise argparse.ArgumentTypeError(f"found {', '.join(unknown)}; there are: {', '.join(SEARCHES)}")
    return names


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Return 1 if there are findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--minutes", type=float, default=60.0, help="a round that has begun is completed [default: 60]")
    add("--rounds", type=int, help="number of rounds, instead of --minutes")
    add("--seed", type=int, default=1, help="of the first round; the next one has the next seed [default: 1]")
    add("--only", type=_searches, metavar="SEARCH,...", help=f"[default: {','.join(SEARCHES)}]")
    add("--length", type=float, default=60.0, help="seconds of disturbances in a round [default: 60]")
    add("--gap", type=float, default=2.0, help="mean seconds between two disturbances [default: 2]")
    add("--keep", type=Path, metavar="DIR", help="keep the data of rounds with findings here")
    add("--json", type=Path, metavar="FILE", help="write all figures to a file, after each round")
    given = parser.parse_args(arguments)
    given.keep = (given.keep or Path(tempfile.mkdtemp(prefix="hopyard-chaos-"))).absolute()
    signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))  # Both stop the cluster in order.
    rounds: list[Round] = []
    interrupted = False
    try:
        asyncio.run(run(given, rounds))
    except KeyboardInterrupt:
        interrupted = True
    sys.stdout.write(f"\n{show(summary(rounds))}\n")
    if interrupted:
        return EXIT_INTERRUPTED
    return 1 if any(one.findings for one in rounds) else 0


if __name__ == "__main__":
    raise SystemExit(main())
