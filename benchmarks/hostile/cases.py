"""The hostile experiments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from figures.timing import timed_spec

_MODULE: Final = "hostile.plugins"
_HARMS: Final = {
    "policy": ("exit", "crash", "loop", "memory", "forks", "flood", "garbage"),
    "generator": ("exit", "crash", "loop", "memory", "forks", "raise", "huge"),
    "solver": ("loop", "memory"),
    "predictor": ("loop", "memory"),
}
_ANSWER_SECONDS: Final = {"loop": 2.0, "memory": 60.0}
"""The time limit of a solver and of a prediction in seconds, by what it does: only a loop may exceed it."""


@dataclass(frozen=True, slots=True)
class Case:
    """A hostile experiment.

    Attributes:
        kind: The kind of its hostile plugin: policy, generator, solver or predictor.
        how: What the plugin does.
    """

    kind: str
    how: str

    @property
    def name(self) -> str:
        """The name of the case on the command line and in the table."""
        return f"{self.kind} {self.how}"

    @property
    def pauses(self) -> bool:
        """Whether the experiment must be paused. Else its policy must get an error as the answer to its question."""
        return self.kind in ("policy", "generator")

    def spec(self, where: Path) -> Mapping[str, Any]:
        """Return the specification of the experiment.

        Args:
            where: The folder for the notes of the plugin.
        """
        terms = {"how": self.how, "where": str(where)}
        changes: dict[str, Any] = {"name": self.name.replace(" ", "-"), "resources": {"slots": 1}}
        match self.kind:
            case "policy":
                changes["policy"] = {"name": f"{_MODULE}:HostilePolicy", **terms}
            case "generator":
                changes["generator"] = {"name": f"{_MODULE}:HostileGenerator", **terms}
            case "solver":
                asked = {"solver": f"{_MODULE}:HostileSolver", "payload": terms, "seconds": _ANSWER_SECONDS[self.how]}
                changes["policy"] = {"name": f"{_MODULE}:Asks", **asked}
            case "predictor":
                changes["policy"] = f"{_MODULE}:Asks"
                named = {"name": f"{_MODULE}:HostilePredictor", "time_limit": _ANSWER_SECONDS[self.how]}
                changes["predictor"] = {**named, **terms}
        jobs = 3 if self.kind == "generator" else 1
        return timed_spec(jobs, 10, 0.02, **changes)


CASES: Final = {case.name: case for kind, harms in _HARMS.items() for case in (Case(kind, how) for how in harms)}
"""All cases by name, in the order in which they run."""
