"""Drafts the experiment file for a script from the analysis of the script."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from hopyard._runtime.bundle import BundleError
from hopyard.cli.errors import WrongUse
from hopyard.cli.init import suggest
from hopyard.cli.init.hints import after_loop_hint, large_files_hint
from hopyard.cli.init.metric_patterns import NUMBER
from hopyard.cli.init.script_analysis import Script, read_script
from hopyard.cli.init.yaml_writer import experiment_text

JOBS: Final = 20
ITERATIONS: Final = 20

_NO_LENGTH: Final = "stop.max_iterations: the number of iterations was not found; policies such as asha need it"

_EXAMPLE_SPACE: Final = {"lr": {"loguniform": [1e-4, 1e-1]}}


@dataclass(slots=True)
class ExperimentDraft:
    """A draft of an experiment file.

    Attributes:
        mode: How the program trains: "trainer", a trainer class; "command", a command that reports; or "log", a program whose output
            is parsed.
        data: The settings of the file.
        notes: Additional comment lines by the field that they precede: "space", or "stop.max_iterations" for a field in a section.
        todo: Sentences about what the user must check or complete.
        hints: Sentences about what the user should know before the first run.
    """

    mode: Literal["trainer", "command", "log"]
    data: dict[str, Any]
    notes: dict[str, list[str]] = field(default_factory=dict)
    todo: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)

    def text(self, source: str) -> str:
        """Return the text of the experiment file. Its first line names `source`, the script for which it was written."""
        head = [
            f"An experiment file for {source}, written by hopyard init.",
            "A line #name: value is a setting at its default; delete the # to change it.",
        ]
        return experiment_text(self.data, head, self.notes)


def plan_for(script: Path | None, folder: Path) -> ExperimentDraft:
    """Draft an experiment file for a script, or a template without one.

    Args:
        script: A Python script, or any executable program; None: a template.
        folder: The folder of the experiment file. Its contents are sent to the nodes.

    Raises:
        InvalidInput: The Python script is missing, or is not valid Python.
        WrongUse: The script is outside the folder, or the program is not a file.
    """
    plan = _draft(script, folder)
    try:
        if hint := large_files_hint(folder):
            plan.hints.append(hint)
    except BundleError as error:
        plan.todo.append(str(error))
    return plan


def _draft(script: Path | None, folder: Path) -> ExperimentDraft:
    if script is None:
        return _without_script()
    path = _within(script, folder)
    if script.suffix != ".py":
        return _program(script, path)
    found = read_script(script)
    plan = _trainer(found, path) if found.trainer is not None else _command(found, path)
    plan.data = {"name": _name(script), **plan.data}
    return plan


def _within(script: Path, folder: Path) -> str:
    path = os.path.relpath(script.absolute(), folder.absolute())
    if path.startswith(".."):
        raise WrongUse(
            f"{script} is outside {folder.absolute()}, and only the folder of the experiment file is sent to the "
            f"machines: hopyard init {script} -o {script.parent / 'experiment.yaml'}"
        )
    return path


def _name(script: Path) -> str:
    stem = script.stem if script.stem not in ("train", "main", "run", "__main__") else script.absolute().parent.name
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:100] or "experiment"


def _without_script() -> ExperimentDraft:
    plan = ExperimentDraft(
        "trainer",
        {
            "name": "experiment",
            "trainer": "train.py:MyTrainer",
            "metric": {"name": "accuracy", "mode": "max"},
            "space": dict(_EXAMPLE_SPACE),
            "stop": {"jobs": JOBS, "max_iterations": ITERATIONS},
        },
    )
    plan.notes["trainer"] = _other_ways("trainer")
    plan.todo = ["no script was named, so everything in it is an example: name your trainer, metric and space"]
    return plan


def _trainer(found: Script, path: str) -> ExperimentDraft:
    space = suggest.space([], found.values)
    plan = ExperimentDraft("trainer", {"trainer": f"{path}:{found.trainer}"})
    _add_metric(plan, found.metrics, f"{found.trainer} returns no metrics that can be seen here")
    _add_space(plan, space, 'its trainer reads no value such as hyperparameters["lr"] that can be seen here')
    plan.data["stop"] = {"jobs": JOBS, "max_iterations": found.epochs or ITERATIONS}
    if found.epochs is None:
        plan.todo.append(f"stop.max_iterations: how long one job is; {ITERATIONS} is a guess")
    plan.notes["trainer"] = _other_ways("trainer")
    return plan


def _command(found: Script, path: str) -> ExperimentDraft:
    lengths = [one for one in found.options if one.name == found.length_option or suggest.is_length(one.name)]
    space = suggest.space([one for one in found.options if one not in lengths], found.values)
    arguments = [word for one in found.options if one.name in space for word in (one.flag, f"{{{one.name}}}")]
    command = ["python", path, *arguments]
    length = found.epochs or next((one.default for one in lengths), None)
    stop: dict[str, Any] = {"jobs": JOBS}
    if isinstance(length, int) and length >= 1:
        stop["max_iterations"] = length
    if found.reports:
        plan = ExperimentDraft("command", {"command": command})
        _add_metric(plan, found.metrics, "hopyard.report is called without a name that can be seen here")
        plan.notes["command"] = _other_ways("command")
        plan.notes["stop.max_iterations"] = [
            "The script is ended inside its report at this position: code after its loop does not run, except",
            "finally blocks. A script that ends before this position is complete at its last report.",
        ]
        if not found.checkpoints:
            plan.todo.append(
                "hopyard.report gets no checkpoint=FILE, so hopyard download finds no model, and a suspended job starts from the "
                "beginning on nodes without CRIU (hopyard doctor shows whether it is there)"
            )
    else:
        plan = ExperimentDraft("log", {})
        _add_log(plan, command, found.patterns)
    _add_space(plan, space, "it has no option with a number as its default")
    if not any(one.name in space for one in found.options) and not found.values:
        plan.todo.append(
            f"pass the values: options in the command, such as [python, {path}, --lr, '{{lr}}'], or "
            'hopyard.hyperparameters()["lr"] in the script'
        )
    plan.data["stop"] = stop
    if "max_iterations" not in stop:
        plan.todo.append(_NO_LENGTH)
    if found.after_loop is not None:
        plan.hints.append(f"{path}:{found.after_loop}: {after_loop_hint(found, stop)}")
    left = [one.flag for one in found.options if one.name not in space]
    if left:
        plan.notes["space"] = [f"Options that are not searched: {', '.join(left)}."]
    flag = next((one.flag for one in lengths if one.default == length), None)
    if flag is not None:
        plan.notes["stop"] = [
            f"max_iterations cannot exceed the length of the script ({flag}): raise both for longer jobs."
        ]
    return plan


def _program(script: Path, path: str) -> ExperimentDraft:
    if not script.exists():
        raise WrongUse(f"{script}: there is no such file")
    if script.is_dir():
        raise WrongUse(f"{script}: this is a folder; name the script in it")
    start = path if os.sep in path else f"./{path}"
    plan = ExperimentDraft("log", {"name": _name(script)})
    _add_log(plan, [start, "{lr}"], {})
    _add_space(plan, {}, "it is not Python, so its arguments are unknown")
    plan.data["stop"] = {"jobs": JOBS}
    plan.todo.append(_NO_LENGTH)
    if not os.access(script, os.X_OK):
        plan.todo.append(f"make it executable: chmod +x {script}")
    return plan


def _add_log(plan: ExperimentDraft, command: Sequence[str], patterns: dict[str, str]) -> None:
    there = dict(patterns) or {"score": f"score={NUMBER}"}
    plan.data["log"] = {"command": list(command), "metrics": there}
    _add_metric(plan, list(there), "")
    plan.notes["log"] = [
        "A line with the experiment's metric ends an iteration; other metrics' last values go with it.",
        *_other_ways("log"),
    ]
    if patterns:
        plan.todo.append(
            "log.metrics: check that the patterns match the output, or call hopyard.report and run init --force"
        )
    else:
        plan.todo.append(
            "log.metrics: no printed metric was recognised; print one after each epoch, such as score=0.93, and adapt the "
            "pattern, or call hopyard.report(score=0.93) and run init --force"
        )


def _add_metric(plan: ExperimentDraft, names: Sequence[str], missing: str) -> None:
    name, mode = suggest.metric(names) or ("accuracy", "max")
    plan.data["metric"] = {"name": name, "mode": mode}
    if len(names) > 1:
        plan.notes["metric"] = [f"Found: {', '.join(names)}."]
    if missing and not names:
        plan.todo.append(f"metric.name: {missing}; accuracy is an example")


def _add_space(plan: ExperimentDraft, space: dict[str, Any], missing: str) -> None:
    plan.data["space"] = space or dict(_EXAMPLE_SPACE)
    if not space:
        plan.todo.append(f"space: {missing}; lr is an example")


def _other_ways(mode: str) -> list[str]:
    """Return comment lines that show the other fields with which a file can name its program. `mode` is the field in use."""
    ways = {
        "trainer": "trainer: train.py:MyTrainer                          a class of yours that is derived from hopyard.Trainer",
        "command": "command: [python, train.py, --lr, '{lr}']            a script that calls hopyard.report(accuracy=...)",
        "log": "log: {command: [./train, '{lr}'], metrics: 'acc=([0-9.]+)'}  any program; metrics are read from its output",
    }
    return ["Alternatives:", *(f"  {text}" for name, text in ways.items() if name != mode)]
