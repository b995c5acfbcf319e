"""Runs one case: damages a copy of a prepared cluster, starts it again, and compares the results."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from observation.service_logs import tracebacks

from damage_cases.bases import Bases, copy_of
from damage_cases.cluster import CaseCluster, Way
from damage_cases.files import FileDamage
from damage_cases.plan import End, Plan
from damage_cases.rows import RowDamage
from damage_cases.verdict import Observation, Tables, Verdict, differing, is_silent, judge, needs_mending

RUNNING_REPORTS: Final = 4
"""Number of reports after the start of the cluster at which damage happens while it runs."""

REPORT_SECONDS: Final = 30.0
"""Maximum time from the start of the first command until these reports come."""

SLOWER: Final = 4.0
"""How many times as long as an undisturbed run a damaged one may take."""

_DATABASE: Final = ("database", "journal file")
_WARNING: Final = re.compile(r"^\S+Z (?:WARNING|ERROR|CRITICAL) (.*)$", re.MULTILINE)
_VARIABLE: Final = re.compile(r"[0-9a-f]{8,}|-[0-9a-f]{6}\b|\d+(?:\.\d+)?")


@dataclass
class Result:
    """The outcome of a case.

    Attributes:
        plan: The case.
        verdict: What happened.
        damage: What was damaged.
        seconds: Duration.
        seen: What was seen after the damage.
        mended: What was seen after it was mended; None: it was not.
        rebuilt: Whether `hopyard doctor --rebuild` mended it; False: the benchmark put the data back.
    """

    plan: Plan
    verdict: Verdict
    damage: str
    seconds: float
    seen: Observation
    mended: Observation | None = None
    rebuilt: bool = False

    def as_json(self) -> Mapping[str, Any]:
        """Return the result without its tables."""
        plan = self.plan
        found = {"number": plan.number, "case": plan.name, "way": plan.way.value, "end": plan.end.value}
        seen = [{k: v for k, v in vars(one).items() if k != "tables" and v} for one in (self.seen, self.mended) if one]
        found |= {"running": plan.running, "rebuilt": self.rebuilt, "verdict": self.verdict.name, "damage": self.damage}
        return found | {"seconds": round(self.seconds, 1), "seen": seen[0], "mended": seen[1] if seen[1:] else None}


@dataclass(frozen=True, slots=True)
class Control:
    """What an undisturbed run shows.

    Attributes:
        tables: The results.
        warnings: Its warnings, without numbers and ids.
        seconds: Its duration.
    """

    tables: Tables
    warnings: frozenset[str]
    seconds: float


class CaseRunner:
    """Runs cases.

    Args:
        folder: Folder for the clusters.
        limit: Seconds until all experiments must have ended or be paused. On a slow machine it is `SLOWER` times as long as an
            undisturbed run takes.
        keep: Whether the folders of cases are kept when they have ended.
    """

    def __init__(self, folder: Path, limit: float, *, keep: bool) -> None:
        self._folder = folder
        self._bases = Bases(folder / "bases")
        self._limit = limit
        self._keep = keep
        self._controls: dict[tuple[Way, End, bool], Control] = {}
        self._lock = threading.Lock()

    def run(self, plan: Plan) -> Result:
        """Run a case.

        Raises:
            LookupError: The cluster has nothing of the kind that the case damages.
            RuntimeError: An undisturbed run does not complete, or has other results than the first one.
        """
        control = self.control(plan)
        began = time.monotonic()
        name = f"{plan.number:04d}"
        cluster, ids = self._copied(name, plan)
        damage = self._damage(plan, cluster, ids)
        seen = self._observed(cluster, plan, damage.apply, control)
        seen.warnings = [line for line in seen.warnings if _is_about(damage, line)]
        if is_silent(seen, control.tables):
            seen.checked += cluster.doctor(self._limit)
        mended, rebuilt = None, False
        if needs_mending(seen, control.tables):
            if plan.rows and cluster.rebuild(self._limit):
                mended = self._observed(cluster, plan, None, control)
                rebuilt = not differing(mended.tables, control.tables)
            if not rebuilt:
                self._mend(plan, cluster, damage)
                mended = self._observed(cluster, plan, None, control)
        verdict = judge(seen, mended, control.tables)
        (cluster.folder / "said.txt").write_text("\n".join(cluster.said))
        result = Result(plan, verdict, damage.text, time.monotonic() - began, seen, mended, rebuilt)
        if self._keep:
            (cluster.folder / "result.json").write_text(json.dumps(result.as_json(), indent=1))
        else:
            shutil.rmtree(cluster.folder)
        return result

    def control(self, plan: Plan) -> Control:
        """Return what an undisturbed run shows that is started in the same way as the case.

        Raises:
            RuntimeError: It does not complete, or has other results than the first one.
        """
        with self._lock:
            key = plan.way, plan.end, plan.running
            if key not in self._controls:
                self._controls[key] = self._undisturbed(replace(plan, where="nothing", damage="control"))
            first = next(iter(self._controls.values()))
            found = self._controls[key]
            for name in set(first.tables) & set(found.tables):
                if first.tables[name] != found.tables[name]:
                    raise RuntimeError(
                        f"{key}: undisturbed runs differ in {name}: {first.tables[name]}, {found.tables[name]}"
                    )
            return found

    def _undisturbed(self, plan: Plan) -> Control:
        name = f"control-{plan.way.value}-{plan.end.value}{'-running' if plan.running else ''}"
        cluster, _ = self._copied(name, plan)
        began = time.monotonic()
        seen = self._observed(cluster, plan, (lambda: None) if plan.running else None, None)
        (cluster.folder / "said.txt").write_text("\n".join(cluster.said))
        states = {name: one["state"] for name, one in seen.tables.items()}
        if seen.crashes or seen.hung or seen.refused or seen.checked or set(states.values()) != {"COMPLETED"}:
            raise RuntimeError(f"{name}: an undisturbed run does not complete: {states}, {seen}; see {cluster.folder}")
        if not self._keep:
            shutil.rmtree(cluster.folder)
        warnings = frozenset(_VARIABLE.sub("#", line) for line in seen.warnings)
        return Control(seen.tables, warnings, time.monotonic() - began)

    def _copied(self, name: str, plan: Plan) -> tuple[CaseCluster, dict[str, str]]:
        folder = self._folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        cluster = CaseCluster(str(folder), folder)
        cluster.released.touch()
        return cluster, copy_of(self._bases.get(plan.way, plan.end), cluster.data)

    def _damage(self, plan: Plan, cluster: CaseCluster, ids: Mapping[str, str]) -> FileDamage | RowDamage:
        if plan.rows:
            return RowDamage(cluster.data / "appstat.sqlite", ids, plan.where, plan.damage, plan.chance)
        foreign = self._bases.foreign() / "data" if plan.damage in ("foreign", "link") else None
        return FileDamage(cluster.data, foreign, plan.where, plan.damage, plan.chance, cluster.folder / "kept")

    def _mend(self, plan: Plan, cluster: CaseCluster, damage: FileDamage | RowDamage) -> None:
        """Undo the damage. A database that was written after the damage is restored with its whole data directory."""
        if plan.where not in _DATABASE:
            damage.undo()
            return
        shutil.rmtree(cluster.data)
        copy_of(self._bases.get(plan.way, plan.end), cluster.data)

    def _observed(
        self, cluster: CaseCluster, plan: Plan, damage: Callable[[], None] | None, control: Control | None
    ) -> Observation:
        """Damage the data, run the experiments to their ends, and return what was seen."""
        for log in (cluster.data / "logs").glob("*.log"):
            log.unlink()
        disturb = None
        if damage is not None and plan.running:
            disturb = _Disturbance(cluster, damage)
        else:
            cluster.enough.touch()
            if damage is not None:
                damage()
        limit = max(self._limit, SLOWER * control.seconds if control is not None else 0.0)
        attempt = cluster.finish(plan.way, limit, disturb)
        if disturb is not None and disturb.error is not None:
            raise disturb.error
        seen = Observation(attempt.crashes + attempt.left, attempt.hung, attempt.refused)
        logs = sorted((cluster.data / "logs").glob("*.log"))
        seen.crashes += map(str, tracebacks(logs))
        for log in logs:
            seen.warnings += _WARNING.findall(log.read_text(errors="replace"))
        if control is not None:
            seen.warnings = [line for line in seen.warnings if _VARIABLE.sub("#", line) not in control.warnings]
        _read(cluster, seen, limit)
        return seen


def _is_about(damage: FileDamage | RowDamage, line: str) -> bool:
    """Return whether a line of a log may report the damage: it names a damaged file, or is of a service that reads rows."""
    if isinstance(damage, FileDamage):
        return any(name in line for name in damage.names)
    return not line.startswith("agent")


class _Disturbance:
    """Damages the data while the cluster runs, kills a training process, and lets the rest train at full speed.

    Attributes:
        error: Why the data could not be damaged; None: they were.
    """

    def __init__(self, cluster: CaseCluster, damage: Callable[[], None]) -> None:
        self._cluster = cluster
        self._damage = damage
        self.error: Exception | None = None

    def __call__(self) -> None:
        database = self._cluster.data / "appstat.sqlite"
        try:
            least = _reports(database) + RUNNING_REPORTS
            end = time.monotonic() + REPORT_SECONDS
            while (found := _reports(database)) < least:
                if time.monotonic() > end:
                    raise TimeoutError(
                        f"the cluster stored {found} reports within {REPORT_SECONDS:g} s, needed are {least}"
                    )
                time.sleep(0.05)
            self._damage()
            self._cluster.kill_runner()
        except Exception as error:  # noqa: BLE001 - raised again when the cluster has stopped
            self.error = error
        finally:
            self._cluster.enough.touch()


def _reports(database: Path) -> int:
    """Return the number of stored reports."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)) as connection:
        found: int = connection.execute("SELECT count(*) FROM statistics").fetchone()[0]
        return found


def _read(cluster: CaseCluster, seen: Observation, limit: float) -> None:
    """Add the stored tables, and what the checks find, to what was seen."""
    found = cluster.read(limit)
    if "crash" in found:
        seen.crashes.append(f"reading: {found['crash']}")
        return
    if found["error"]:
        seen.refused.append(f"reading: {found['error']}")
    tables: dict[str, Mapping[str, Any]] = {}
    for one in found["experiments"]:
        name = one["name"]
        while name in tables:
            name += " again"
        tables[name] = {key: one[key] for key in ("state", "best", "jobs", "reports")}
        if one["state"] == "PAUSED":
            seen.codes[name] = one["reason_code"]
        elif one["state"] != "COMPLETED":
            seen.ends[name] = f"{one['state']} {one['reason_code']}"
    seen.tables = tables
    for name, (code, out, errors) in found["replay"].items():
        if "a bug in Hopyard" in errors:
            seen.crashes.append(f"hopyard replay {name}: {errors}")
        elif code:
            equal = json.loads(out)["decisions_equal"] if out.startswith("{") else None
            seen.checked.append(f"hopyard replay {name}: {errors.strip() or f'decisions_equal: {equal}'}")
