"""Judges what happened in a case. The judgement uses states, codes and tables, never the text of a message."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Tables = Mapping[str, Mapping[str, Any]]
"""For each experiment by name its state, its best job, its jobs and its reports."""


class Verdict(enum.Enum):
    """The outcome of a case.

    NOT_USED: the results are those of an undisturbed run, and nothing was reported while the cluster ran.
    HEALED: the results are those of an undisturbed run, and the damage was reported.
    PAUSED: the damaged experiment was paused with a reason code, all others completed, and it completed after the damage was mended.
    REFUSED: a command was refused with one message, and everything completed after the damage was mended.
    FOUND: the results differ, and only `hopyard replay` or `hopyard doctor` says so; after `hopyard doctor --rebuild`, or after the
        damage was mended, they are right.
    SILENT: the results differ, and nothing says so.
    WRONG_END: the results differ although the damage was reported and mended: an experiment has failed, or another one suffered.
    CRASH: a traceback, a bug, a signal, or a process that outlived its command.
    HANG: an experiment did not come to an end or to a pause in time.
    """

    NOT_USED = "not used"
    HEALED = "found and healed"
    PAUSED = "found and paused"
    REFUSED = "found and refused"
    FOUND = "found by a check"
    SILENT = "SILENT DIFFERENCE"
    WRONG_END = "WRONG END"
    CRASH = "CRASH"
    HANG = "HANG"

    @property
    def finding(self) -> bool:
        """Whether the case is a defect."""
        return self in (Verdict.SILENT, Verdict.WRONG_END, Verdict.CRASH, Verdict.HANG)


@dataclass
class Observation:
    """What was seen after one start of a cluster.

    Attributes:
        crashes: Tracebacks, bugs, signals and processes that outlived their command.
        hung: Whether the time limit was exceeded.
        refused: Messages of refused commands and calls.
        warnings: Lines of the services' logs above the level INFO that do not appear without damage.
        checked: What `hopyard replay` and `hopyard doctor` found.
        tables: The results.
        codes: The reason code of each experiment that is paused, by name.
        ends: State and reason code of each experiment that is neither paused nor COMPLETED, by name.
    """

    crashes: list[str] = field(default_factory=list)
    hung: bool = False
    refused: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    tables: Tables = field(default_factory=dict)
    codes: dict[str, str] = field(default_factory=dict)
    ends: dict[str, str] = field(default_factory=dict)

    @property
    def told(self) -> bool:
        """Whether a command refused something, or an experiment is paused."""
        return bool(self.codes or self.refused)


def differing(found: Tables, reference: Tables) -> list[str]:
    """Return the names of the experiments whose results differ. Experiments of the reference that `found` lacks differ, too."""
    names = sorted({*found, *reference})
    return [name for name in names if found.get(name) != reference.get(name)]


def is_silent(seen: Observation, reference: Tables) -> bool:
    """Return whether the results differ, and nothing says so."""
    quiet = not (seen.crashes or seen.hung or seen.told or seen.checked)
    return quiet and bool(differing(seen.tables, reference)) and not _failed(seen.tables, reference)


def needs_mending(seen: Observation, reference: Tables) -> bool:
    """Return whether the damage must be mended before the case can be judged: it was reported, and no experiment has failed."""
    if seen.crashes or seen.hung or _failed(seen.tables, reference):
        return False
    return bool(differing(seen.tables, reference)) and bool(seen.told or seen.checked)


def judge(seen: Observation, mended: Observation | None, reference: Tables) -> Verdict:
    """Return the verdict of a case.

    Args:
        seen: What was seen after the damage.
        mended: What was seen after the damage was mended and the experiments were continued; None: it was not mended.
        reference: The results of an undisturbed run.
    """
    for one in (seen, mended):
        if one is not None and one.crashes:
            return Verdict.CRASH
        if one is not None and one.hung:
            return Verdict.HANG
    wrong = differing(seen.tables, reference)
    if not wrong:
        return Verdict.HEALED if seen.warnings or seen.refused else Verdict.NOT_USED
    if is_silent(seen, reference):
        return Verdict.SILENT
    if mended is None or differing(mended.tables, reference):
        return Verdict.WRONG_END
    if not seen.told:
        return Verdict.FOUND
    if set(wrong) <= set(seen.codes):
        return Verdict.PAUSED
    return Verdict.REFUSED if seen.refused else Verdict.WRONG_END


def _failed(found: Tables, reference: Tables) -> list[str]:
    """Return the names of the experiments that cannot be continued, because they ended in another state."""
    ended = {name: one["state"] for name, one in found.items() if one["state"] in ("COMPLETED", "FAILED", "STOPPED")}
    return [name for name, state in ended.items() if name in reference and state != reference[name]["state"]]


def counts(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """Return the number of cases of each verdict, in the order of `Verdict`."""
    return {verdict.value: verdicts.count(verdict) for verdict in Verdict if verdict in verdicts}
