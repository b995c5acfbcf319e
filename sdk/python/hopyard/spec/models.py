"""The models of the experiment file. The reference page is generated from the descriptions of their fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

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
    problems_error,
)

_INT64 = 2**63 - 1
_MOST = 100_000

REMOTE: Final = "remote:"
"""Prefix of the names of policies that run in separate processes and connect to the scheduler."""

DEFAULT_PREDICTOR: Final = "pooled"
"""The predictor of an experiment whose file does not name one."""


class _Section(BaseModel):
    """Base class of the sections: immutable, with strict types and without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class LogSpec(_Section):
    """Any program. Its metrics are read from its output."""

    command: Command = Field(description="The program and its arguments; {name} is the job's value, {{ is a brace.")
    metrics: dict[str, Pattern] = Field(
        description="Regular expression for each metric; its one group is the number. A bare pattern stands for the "
        "experiment's metric, whose match ends an iteration."
    )


class MetricSpec(_Section):
    """What the search optimises."""

    name: str = Field(min_length=1, description="The metric's name in the reports.")
    mode: Literal["max", "min"] = Field(description="Whether larger (max) or smaller (min) values are better.")
    target: float | None = Field(
        None, description="The experiment ends when a job reaches this value; none: no target."
    )
    target_over: int = Field(
        1,
        ge=1,
        le=_MOST,
        description="The target is reached by the mean of a job's last so many reports, all of them finite; 1: by a single "
        "report. What predicts curves predicts single reports.",
    )
    kill_threshold: float | None = Field(
        None, description="A policy may end a job that stays worse than this value; none: no threshold."
    )
    min: float | None = Field(
        None, description="The smallest value that the metric can have, which helps predictors; none: not known."
    )
    max: float | None = Field(
        None, description="The largest value that the metric can have, which helps predictors; none: not known."
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


class _PluginSpec(_Section):
    """A plugin with its name and its parameters. All other fields are parameters."""

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


class GeneratorSpec(_PluginSpec):
    """The generator, which proposes configurations. Other fields are parameters of the generator."""

    name: PluginName = Field(
        "random",
        description="A generator's name (see `hopyard plugins`) or module:Class; a policy may bring its own if none is given "
        "(bohb: tpe).",
    )
    seed: int = Field(0, ge=0, le=_INT64, description="Seed of the proposals: the same seed proposes the same.")


class PolicySpec(_PluginSpec):
    """The policy, which decides which job runs where. Other fields are parameters of the policy."""

    name: PluginName = Field(
        "default",
        description="A policy's name (see `hopyard plugins`), module:Class, or remote:NAME for one that a process of its own "
        "serves under that name.",
    )
    command: Command | None = Field(
        None,
        description="Instead of a name: a program that the scheduler starts, in the experiment's code, as the policy's process; "
        "none: the policy is the one named.",
    )

    @property
    def dials_in(self) -> str:
        """The name under which processes serve it; empty if no process does."""
        return self.name.removeprefix(REMOTE) if self.command is None and self.name.startswith(REMOTE) else ""

    @property
    def remote(self) -> bool:
        """Whether the policy runs in a separate process."""
        return self.command is not None or bool(self.dials_in)

    @property
    def label(self) -> str:
        """The name, or the command line, for display."""
        return self.name if self.command is None else " ".join(self.command)

    @model_validator(mode="after")
    def _command_or_name(self) -> Self:
        if self.command is not None and "name" in self.model_fields_set and self.name != "default":
            raise problems_error(
                [Problem(("name",), f"found {self.name!r} beside command: the policy is the program, or the one named")]
            )
        return self


class PredictorSpec(_PluginSpec):
    """The predictor, which extrapolates learning curves for the policy. Other fields are parameters of the predictor."""

    name: PluginName = Field(
        DEFAULT_PREDICTOR, description="A predictor's name (see `hopyard plugins`) or module:Class."
    )
    time_limit: Seconds = Field(
        60.0,
        description="Time that one prediction may compute on its node; then it is ended, and the policy told. Waiting for a "
        "processor that training has counts only after twenty times as long.",
    )
    memory: Bytes | None = Field(
        2 * 2**30,
        description="Memory that its process on a node may hold, with the processes that it starts: 500MB, 2GiB or bytes. One "
        "that holds more is ended, and the policy told. None: no limit.",
    )
    earlier: bool = Field(
        True,
        description="Whether a predictor that reads other curves is also given those of earlier experiments on the same space "
        "and metric.",
    )


class StopSpec(_Section):
    """When a job ends and when the experiment ends. The first condition that is met ends it."""

    jobs: int | None = Field(
        None,
        ge=0,
        description="The most jobs to make; none: until the generator has no further configuration. 0, with idle: those that "
        "clients ask for, and no others.",
    )
    max_iterations: int | None = Field(
        None,
        ge=1,
        description="The position, in units, at which a job is complete; none: the program ends by itself. A trainer "
        "needs it.",
    )
    max_time: Seconds | None = Field(
        None,
        description="Time the experiment may run, pauses not counted: 30s, 15m, 2h, 1d or seconds; none: no limit. "
        "What trains or waits then goes on after `hopyard extend --time`.",
    )
    idle: Seconds | None = Field(
        None,
        description="Time for which it stays open for clients' requests when it has nothing to do, without a machine; a client that "
        "has it open makes it begin anew. None: it ends then. For policies that serve requests, such as stage_tree.",
    )
    iteration_timeout: Seconds | None = Field(
        None, description="Time one iteration may take before its run counts as hung and fails; none: no limit."
    )
    max_failures: int = Field(
        3, ge=0, description="Failures of the user's code that one job survives; with one more it is FAILED."
    )


class SnapshotSpec(_Section):
    """How training state is saved."""

    provider: Literal["auto", "framework", "criu"] = Field(
        "auto",
        description="What takes snapshots: framework: the program's own save and load; criu: the node dumps the processes of a "
        "command. auto: on nodes that have criu, it for a log program, and for a Python script where that gives no checkpoint; else "
        "framework.",
    )
    every: int | None = Field(
        None,
        ge=1,
        description="Units between two snapshots of a running job. None: 1; with criu, and in log mode, only when the job leaves its "
        "machine, or where the policy asks. With auto a script's processes are dumped only when it leaves its machine.",
    )
    ship_every: int | None = Field(
        None,
        ge=0,
        description="Units between two snapshots that go to the store, where they survive their node; 0: only what is left when a "
        "job ends or the experiment pauses. None: as the policy likes it, usually 1: each.",
    )
    keep_latest: int = Field(1, ge=1, description="How many of a job's newest snapshots are kept.")
    keep_best: int = Field(1, ge=0, description="How many of a job's best snapshots by the metric are kept as well.")
    quota: Bytes | None = Field(
        None,
        description="Bytes that all snapshots of the experiment may take: 500MB, 10GiB or a number; the least valuable "
        "are dropped first, and never what is still needed. None: no limit.",
    )


class JobResources(_Section):
    """The resources of one slot."""

    cpus: int = Field(1, ge=1, le=_MOST, description="CPU cores (and threads) of a slot.")
    gpus: int = Field(0, ge=0, le=_MOST, description="GPUs of a slot.")
    memory: Bytes | None = Field(
        None,
        description="Memory that a run's processes may use together on a slot: 500MB, 2GiB or bytes. A run that uses more "
        "is ended, as a failure of the user's code; a process that began a session of its own and outlived its parent "
        "is not counted. None: no limit.",
    )
    data_cache: Bytes | None = Field(
        None,
        description="Bytes of data that a trainer's process keeps in memory for the next runs (hopyard.trainer.cached, input_fn): "
        "500MB, 2GiB or bytes. None: a quarter of `memory`, or, without one, half of the slot's share of the host's memory.",
    )


class ResourcesSpec(_Section):
    """The resources of the experiment."""

    slots: int | None = Field(
        None, ge=1, le=_MOST, description="The most machines it uses at a time; none: all that its share gives."
    )
    concurrency: int | None = Field(
        None,
        ge=1,
        le=_MOST,
        description="The most jobs that train at a time, each on as many machines as its policy gives it; none: no limit.",
    )
    per_job: JobResources = Field(JobResources(), description="What one slot must have.")


class ExperimentSpec(_Section):
    """One search: program, metric, space, generator, policy and budget. It is immutable.

    Exactly one of `trainer`, `command` and `log` must be given; it is what trains.
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
        "names, + - * / // % **, comparisons, in [...], and, or, not, min, max, abs, log, len, at(lr, 50) for what a sequence "
        "is at a position. One with the name of a parameter that is not in a configuration holds there.",
    )
    generator: Annotated[GeneratorSpec, NameOrMapping] = Field(
        GeneratorSpec(), description="What proposes configurations: a name, or a mapping with parameters."
    )
    policy: Annotated[PolicySpec, NameOrMapping] = Field(
        PolicySpec(), description="What decides which job runs where: a name, or a mapping with parameters."
    )
    predictor: Annotated[PredictorSpec, NameOrMapping] = Field(
        PredictorSpec(),
        description="What extrapolates learning curves, for policies that ask: a name, or a mapping with parameters.",
    )
    data: DataName | None = Field(
        None,
        description="Partitioned data that stay where they are (`hopyard data register`), for policies that send jobs to them; "
        "none: the program finds its data itself.",
    )
    stop: StopSpec = Field(StopSpec(), description="When jobs and the experiment end.")
    snapshot: SnapshotSpec = Field(SnapshotSpec(), description="How and how long training state is kept.")
    resources: ResourcesSpec = Field(ResourcesSpec(), description="What it uses.")
    unit: Literal["steps", "epochs", "units"] = Field(
        "epochs", description="What a position counts: optimizer steps, epochs, or training units of the program's own."
    )
    interpreter: FilePath | None = Field(
        None,
        description="The Python that runs the program, or the folder of a virtual environment; relative: in the working "
        "directory. It is what `python` means as a command's first argument. None: the node agent's own.",
    )
    environment: dict[Variable, GivenText] = Field(
        {}, description="Variables added to the program's environment; they stand in the journal, so no secrets here."
    )
    working_directory: FolderPath | None = Field(
        None,
        description="Where the program runs: a folder inside the code, or an absolute one on the nodes. None: the code's "
        "top folder.",
    )
    seed: int = Field(
        0, ge=0, le=_INT64, description="Seed of the training: with a configuration's values it gives the job's seed."
    )
    weight: float = Field(1.0, gt=0, description="Its part of the cluster, relative to other experiments' weights.")
    share: Name | None = Field(
        None, description="Live experiments with the same key form one group: one policy, summed weight."
    )

    @property
    def program(self) -> Literal["trainer", "command", "log"]:
        """The field that says what trains."""
        return "trainer" if self.trainer else "command" if self.command else "log"

    @property
    def search_space(self) -> Space:
        """The space with its constraints, from which a generator proposes configurations."""
        return self.space.constrained(self.constraints) if self.constraints else self.space

    def with_generator(self, name: str) -> Self:
        """Return the experiment with the generator that its policy requests (`Policy.generator`), if its file names none."""
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
    """Return the mistakes in the choice between trainer, command and log. There are none if exactly one is given."""
    given = [name for name in ("trainer", "command", "log") if data.get(name) is not None]
    if len(given) == 1:
        return []
    place = (given[1],) if given else ()
    return [Problem(place, f"needs exactly one of trainer, command, log; found {' and '.join(given) or 'none'}")]
