"""The pydantic models of the experiment file. The reference page is generated from the descriptions of their fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from hopyard._common import command_template
from hopyard.space import Problem, Space, SpaceError, json_problem
from hopyard.spec.fields import (
    Bytes,
    Command,
    DataName,
    FilePath,
    FolderPath,
    GivenText,
    Name,
    NameOrMapping,
    Pattern,
    PluginName,
    Seconds,
    SpaceField,
    Strings,
    TrainerPath,
    Variable,
    Variables,
    problems_error,
)
from hopyard.spec.sections import LogsSpec, ResourcesSpec, Section, SnapshotSpec, StopSpec

_INT64 = 2**63 - 1

MAX_REPORTS: Final = 100_000
"""Upper limit of `metric.every` and `metric.target_over`."""

REMOTE: Final = "remote:"
"""Prefix of the names of policies that run in separate processes and connect to the scheduler."""

PROGRAM_FIELDS: Final = ("trainer", "command", "log")
"""The fields of an experiment file of which exactly one describes its program."""

DEFAULT_PREDICTOR: Final = "pooled"
"""The predictor of an experiment whose file does not name one."""


class LogSpec(Section):
    """The program of log mode: any program, whose metrics are read from its output."""

    command: Command = Field(description="The program and its arguments; {name} is the job's value, {{ is a brace.")
    metrics: dict[str, Pattern] = Field(
        description="Regular expression for each metric, with one group around the number. A single pattern without a "
        "name is for the experiment's metric. A match of that metric ends an iteration."
    )


class MetricSpec(Section):
    """The metric that the search optimizes."""

    name: str = Field(min_length=1, description="The metric's name in the reports.")
    mode: Literal["max", "min"] = Field(description="Whether larger (max) or smaller (min) values are better.")
    target: float | None = Field(
        None, description="The experiment ends when a job reaches this value; none: no target."
    )
    target_over: int = Field(
        1,
        ge=1,
        le=MAX_REPORTS,
        description="The target is reached when the mean of this number of a job's last reports, all finite, reaches it; "
        "1: a single report. Predictors still predict single reports.",
    )
    kill_threshold: float | None = Field(
        None, description="A policy may end a job that stays worse than this value; none: no threshold."
    )
    min: float | None = Field(
        None,
        description="The smallest value that the metric can have, which helps predictors; none: not known. With `min` and `max`, "
        "policies compare jobs by normalized values: 0 for the worst and 1 for the best value.",
    )
    max: float | None = Field(
        None, description="The largest value that the metric can have; none: not known. See `min`."
    )
    every: int = Field(
        1,
        ge=1,
        le=MAX_REPORTS,
        description="At least one of this number of successive reports of a job contains the metric. If no job has reported it and "
        "one has reported so often, the experiment pauses, because the name is probably wrong.",
    )

    @model_validator(mode="after")
    def _target_is_in_range(self) -> Self:
        low, high = self.min, self.max
        if self.target is None and self.target_over > 1:
            message = f"found {self.target_over}, but there is no target: give one (metric.target), or leave this out"
            raise problems_error([Problem(("target_over",), message)])
        if low is not None and high is not None and low >= high:
            raise problems_error([Problem(("max",), f"needs to be above min {low:g}, found {high:g}")])
        if self.target is not None:
            if low is not None and self.target < low:
                raise problems_error([Problem(("target",), f"needs to be at least min {low:g}, found {self.target:g}")])
            if high is not None and self.target > high:
                raise problems_error([Problem(("target",), f"needs to be at most max {high:g}, found {self.target:g}")])
        return self

    @model_validator(mode="after")
    def _threshold_is_worse_than_target(self) -> Self:
        if self.target is None or self.kill_threshold is None:
            return self
        if self.kill_threshold == self.target or (self.kill_threshold > self.target) == (self.mode == "max"):
            wanted = "below" if self.mode == "max" else "above"
            message = (
                f"needs to be {wanted} the target {self.target:g} (mode {self.mode}), found {self.kill_threshold:g}"
            )
            raise problems_error([Problem(("kill_threshold",), message)])
        return self


class _PluginSpec(Section):
    """A plugin in the experiment file: its name, and its parameters, which are all fields that the model does not declare."""

    model_config = ConfigDict(extra="allow")

    name: PluginName

    @property
    def parameters(self) -> dict[str, Any]:
        """The plugin's parameters: JSON values by name, in the order of the file."""
        return dict(self.model_extra or {})

    @model_validator(mode="after")
    def _parameters_are_json(self) -> Self:
        found = [
            Problem((name,), f"needs a JSON value, but {problem}")
            for name, value in self.parameters.items()
            if (problem := json_problem(value))
        ]
        if found:
            raise problems_error(found)
        return self


def _check_inline(inline: bool, names: Iterable[str]) -> None:
    """Raise a validation error if `inline` is set and one of the names is not that of an installed plugin."""
    for name in names if inline else ():
        if ":" in name:
            message = (
                f"found true with {name}; allowed only for the name of an installed plugin (hopyard plugins), "
                "because a service imports no code of an experiment"
            )
            raise problems_error([Problem(("inline",), message)])


class GeneratorSpec(_PluginSpec):
    """The generator, which proposes configurations. Other fields are parameters of the generator."""

    name: PluginName = Field(
        "random",
        description="A generator's name (see `hopyard plugins`) or module:Class; some policies select one if none is given "
        "(bohb: tpe).",
    )
    seed: int = Field(0, ge=0, le=_INT64, description="Seed of the proposals. The same seed gives the same proposals.")
    inline: bool = Field(
        False,
        description="Whether an installed generator of a third party runs inside the generator service instead of in a "
        "separate process. Its faults then affect all experiments. Built-in generators always run inside.",
    )

    @model_validator(mode="after")
    def _inline_is_installed(self) -> Self:
        _check_inline(self.inline, (self.name,))
        return self


class PolicySpec(_PluginSpec):
    """The policy, which decides which job runs where. Other fields are parameters of the policy."""

    name: PluginName = Field(
        "default",
        description="A policy's name (see `hopyard plugins`), module:Class, or remote:NAME for a policy that a separate "
        "process serves under that name.",
    )
    command: Command | None = Field(
        None,
        description="Instead of a name: a program in the experiment's code that the scheduler starts as the policy's process; "
        "none: the named policy is used.",
    )
    inline: bool = Field(
        False,
        description="Whether an installed policy of a third party runs inside the scheduler instead of in a separate process. "
        "Its faults then affect all experiments. Built-in policies always run inside.",
    )

    @property
    def dials_in(self) -> str:
        """The name NAME of a policy `remote:NAME`, under which a separate process connects to the scheduler; empty for others."""
        return self.name.removeprefix(REMOTE) if self.command is None and self.name.startswith(REMOTE) else ""

    @property
    def remote(self) -> bool:
        """Whether the policy runs in a separate process, which the scheduler starts (`command`) or which connects to it (`remote:`)."""
        return self.command is not None or bool(self.dials_in)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of the policy, followed by the names of the policies nested in it by the parameter `tuner`."""
        found, inner = [self.name], self.parameters.get("tuner")
        while isinstance(inner, Mapping) and isinstance(inner.get("name"), str):
            found.append(inner["name"])
            inner = inner.get("tuner")
        return (*found, inner) if isinstance(inner, str) else tuple(found)

    @property
    def label(self) -> str:
        """The text that identifies the policy in messages: its name, or its command line."""
        return self.name if self.command is None else " ".join(self.command)

    @model_validator(mode="after")
    def _command_or_name(self) -> Self:
        if self.command is not None and "name" in self.model_fields_set and self.name != "default":
            raise problems_error(
                [Problem(("name",), f"found {self.name!r} together with command; allowed: one of them")]
            )
        return self

    @model_validator(mode="after")
    def _inline_is_installed(self) -> Self:
        if self.inline and self.command is not None:
            raise problems_error([Problem(("inline",), "found true with command, which is always a process")])
        _check_inline(self.inline, self.names)
        return self


class PredictorSpec(_PluginSpec):
    """The predictor, which extrapolates learning curves for the policy. Other fields are parameters of the predictor."""

    name: PluginName = Field(
        DEFAULT_PREDICTOR, description="A predictor's name (see `hopyard plugins`) or module:Class."
    )
    time_limit: Seconds = Field(
        60.0,
        description="Time limit of one prediction on its node. A prediction that exceeds it is ended, and the policy gets "
        "an error. Waiting for a busy CPU counts only after twenty times as long.",
    )
    memory: Bytes | None = Field(
        2 * 2**30,
        description="Memory limit of its process on a node, including the processes that it starts: 500MB, 2GiB or bytes. A "
        "process that exceeds it is ended, and the policy gets an error. None: no limit.",
    )
    earlier: bool = Field(
        True,
        description="Whether a predictor that reads other curves also gets curves of earlier experiments with the same space "
        "and metric.",
    )


class ExperimentSpec(Section):
    """The specification of one experiment: program, metric, space, generator, policy and budget. It is immutable.

    Exactly one of `trainer`, `command` and `log` must be given. It is the program that trains.
    """

    name: Name = Field(description="The experiment's name; need not be unique.")
    trainer: TrainerPath | None = Field(
        None, description="Trainer mode: a Trainer subclass, file.py:Class or package.module:Class."
    )
    command: Command | None = Field(
        None,
        description="Script mode: a program that calls hopyard.report(...), and its arguments; {name} is the job's value, "
        "{{ is a brace.",
    )
    log: LogSpec | None = Field(None, description="Log mode: any program; metrics are read from its output.")
    metric: MetricSpec = Field(description="What is optimised.")
    space: SpaceField = Field(description="The hyperparameters and their values.")
    constraints: Strings = Field(
        (),
        description="Expressions that every configuration must fulfil, such as batch_size * width <= 4096: numbers, text, "
        "names, + - * / // % **, comparisons, in [...], and, or, not, min, max, abs, log, len, at(lr, 50) for the value of a "
        "sequence at a position. A constraint that names a parameter outside the configuration is fulfilled.",
    )
    generator: Annotated[GeneratorSpec, NameOrMapping] = Field(
        GeneratorSpec(),
        description="The generator, which proposes configurations: a name, or a mapping with parameters.",
    )
    policy: Annotated[PolicySpec, NameOrMapping] = Field(
        PolicySpec(),
        description="The policy, which decides which job runs where: a name, or a mapping with parameters.",
    )
    predictor: Annotated[PredictorSpec, NameOrMapping] = Field(
        PredictorSpec(),
        description="The predictor, which extrapolates learning curves for the policy: a name, or a mapping with parameters.",
    )
    data: DataName | None = Field(
        None,
        description="Partitioned data that stays on its nodes (`hopyard data register`), for policies that send jobs to it; "
        "none: the program finds its data itself.",
    )
    stop: StopSpec = Field(StopSpec(), description="When jobs and the experiment end.")
    snapshot: SnapshotSpec = Field(SnapshotSpec(), description="How training state is saved, and how long it is kept.")
    resources: ResourcesSpec = Field(ResourcesSpec(), description="The resources that it uses.")
    logs: LogsSpec = Field(LogsSpec(), description="How much of the output of jobs is kept.")
    unit: Literal["steps", "epochs", "units"] = Field(
        "epochs", description="What a position counts: optimizer steps, epochs, or units that the program defines."
    )
    interpreter: FilePath | None = Field(
        None,
        description="The Python that runs the program, or the folder of a virtual environment. A relative path starts in the "
        "working directory. `python` as a command's first argument means this Python. None: the node agent's Python.",
    )
    environment: dict[Variable, GivenText] = Field(
        {},
        description="Variables added to the program's environment. The journal contains them, so do not put secrets here.",
    )
    inherit_environment: Variables = Field(
        (),
        description="Variables that the program gets from the environment of its node's agent, such as keys of other services. Only "
        "the names are stored, never the values. A node on which one is not set runs no job of the experiment.",
    )
    working_directory: FolderPath | None = Field(
        None,
        description="The program's working directory: a folder inside the code, or an absolute path on the nodes. None: "
        "the top folder of the code.",
    )
    seed: int = Field(
        0,
        ge=0,
        le=_INT64,
        description="Seed of the training. Together with a configuration's values it determines the job's seed.",
    )
    weight: float = Field(
        1.0, gt=0, description="Its share of the cluster, relative to the weights of other experiments."
    )
    share: Name | None = Field(
        None,
        description="Live experiments with the same key form one group with one policy and the sum of their weights.",
    )

    @property
    def program(self) -> Literal["trainer", "command", "log"]:
        """The name of the field that gives the program: `trainer`, `command` or `log`."""
        return "trainer" if self.trainer else "command" if self.command else "log"

    @property
    def search_space(self) -> Space:
        """The space with the constraints of the experiment file, from which a generator proposes configurations."""
        return self.space.constrained(self.constraints) if self.constraints else self.space

    def with_generator(self, name: str) -> Self:
        """Return the specification with the generator `name`, unless its file names a generator or `name` is empty.

        Args:
            name: The generator that the experiment's policy prefers (`Policy.generator`).
        """
        if not name or "name" in self.generator.model_fields_set:
            return self
        return self.model_copy(update={"generator": self.generator.model_copy(update={"name": name})})

    @model_validator(mode="before")
    @classmethod
    def _a_bare_pattern_is_for_the_metric(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        match (data.get("log"), data.get("metric")):
            case ({"metrics": str(pattern), **others}, {"name": str(name)}):
                return {**data, "log": {**others, "metrics": {name: pattern}}}
        return data

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        found = program_problems({"trainer": self.trainer, "command": self.command, "log": self.log})
        if self.trainer and self.stop.max_iterations is None:
            found.append(
                Problem(("stop", "max_iterations"), "is required for a trainer: at which position a job is complete")
            )
        # Check the size last, because counting a space can take some time.
        if self.stop.jobs == 0 and self.stop.idle is None:
            message = "found 0, which is for experiments that are open for requests: give stop.idle, or at least 1"
            found.append(Problem(("stop", "jobs"), message))
        ends = self.stop.jobs is not None or self.stop.max_time or self.generator.name == "grid"
        if not ends and self.space.size is None:
            found.append(Problem(("stop",), "needs jobs or max_time: the space is endless, so the search would be too"))
        for path, command in (("command",), self.command), (("log", "command"), self.log and self.log.command):
            unknown = command_template.problems(command or (), self.space)
            found += [Problem((*path, index), message) for index, message in unknown]
        for index, name in enumerate(self.inherit_environment):
            if name in self.environment:
                message = f"found {name}, which environment sets; allowed: one of them"
                found.append(Problem(("inherit_environment", index), message))
        if self.log and self.metric.name not in self.log.metrics:
            found.append(Problem(("log", "metrics"), f"needs a pattern for the experiment's metric {self.metric.name}"))
        try:
            self.space.constrained(self.constraints)
        except SpaceError as error:
            found += error.problems
        if found:
            raise problems_error(found)
        return self


def program_problems(data: Mapping[str, object]) -> list[Problem]:
    """Return a problem unless exactly one of the fields `trainer`, `command` and `log` is given.

    Args:
        data: The fields of the experiment file; None is the same as a missing field.
    """
    given = [name for name in PROGRAM_FIELDS if data.get(name) is not None]
    if len(given) == 1:
        return []
    place = (given[1],) if given else ()
    return [Problem(place, f"needs exactly one of trainer, command, log; found {' and '.join(given) or 'none'}")]
