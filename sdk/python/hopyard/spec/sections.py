"""The sections of the experiment file about limits: when it ends, what it keeps, and which resources it uses."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from hopyard.policy.vocabulary import ENDLESS
from hopyard.spec.fields import Bytes, LogBytes, Seconds

_MOST: Final = 100_000


class Section(BaseModel):
    """Base class of the sections of an experiment file: immutable, with strict types and without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class StopSpec(Section):
    """The conditions that end a job or the experiment; each field says which of the two. The first condition that is met ends it."""

    jobs: int | None = Field(
        None,
        ge=0,
        lt=ENDLESS,
        description="Maximum number of jobs to create; none: until the generator has no further configuration. 0, with idle: "
        "only jobs that clients request.",
    )
    max_iterations: int | None = Field(
        None,
        ge=1,
        lt=ENDLESS,
        description="The position, in units, at which a job is complete; none: the program ends by itself. A trainer "
        "needs it.",
    )
    max_time: Seconds | None = Field(
        None,
        description="Time the experiment may run, pauses not counted: 30s, 15m, 2h, 1d or seconds; none: no limit. "
        "Unfinished jobs can continue after `hopyard extend --time`.",
    )
    idle: Seconds | None = Field(
        None,
        description="Time for which the experiment stays open for clients' requests when it has nothing to do. It then holds no "
        "slot. A client that has it open restarts this time. None: it ends at once. For policies that serve requests, "
        "such as stage_tree.",
    )
    iteration_timeout: Seconds | None = Field(
        None, description="Time one iteration may take before its run counts as hung and fails; none: no limit."
    )
    max_failures: int = Field(
        3,
        ge=0,
        description="Number of failures of the user's code after which a job is tried again; after one more it is FAILED.",
    )


class SnapshotSpec(Section):
    """How and how often snapshots are taken, which of them are sent to the store, and which are kept."""

    provider: Literal["auto", "framework", "criu"] = Field(
        "auto",
        description="What takes snapshots: framework: the program's save and load; criu: the node dumps the processes of a "
        "command. auto: on nodes that have criu, criu for a log program, and for a Python script that gives no checkpoint; "
        "otherwise framework.",
    )
    every: int | None = Field(
        None,
        ge=1,
        description="Number of units between two snapshots of a running job. None: 1; with criu and in log mode, only when the job "
        "leaves its slot or the policy requests one. With auto a script's processes are dumped only when it leaves its slot.",
    )
    ship_every: int | None = Field(
        None,
        ge=0,
        description="Number of units between two snapshots that are sent to the store, where they survive the loss of their node; "
        "0: only the last ones, when a job ends or the experiment pauses. None: the policy's value, usually 1: each.",
    )
    keep_latest: int = Field(1, ge=1, description="Number of a job's newest snapshots that are kept.")
    keep_best: int = Field(1, ge=0, description="Number of a job's best snapshots, by the metric, that are also kept.")
    quota: Bytes | None = Field(
        None,
        description="Maximum size of all snapshots of the experiment: 500MB, 10GiB or bytes. The least valuable ones "
        "are deleted first, but never those that are still needed. None: no limit.",
    )


class LogsSpec(Section):
    """How much of the output of jobs is kept on each node."""

    per_job: LogBytes | None = Field(
        10 * 2**20,
        description="Maximum size of a job's log on a node: 500KB, 10MiB or bytes, at least 64KiB. Of a longer log the "
        "beginning and the newest part are kept, and one line says how much was cut out. Each rank of a gang has its own "
        "log. None: no limit.",
    )
    per_experiment: LogBytes | None = Field(
        2**30,
        description="Maximum size of all logs of the experiment, or of its group, on a node. The largest logs are cut "
        "first, and each keeps at least 64KiB. None: no limit.",
    )


class JobResources(Section):
    """The resources that a slot must have for one of the experiment's jobs."""

    cpus: int = Field(1, ge=1, le=_MOST, description="CPU cores (and threads) of a slot.")
    gpus: int = Field(0, ge=0, le=_MOST, description="GPUs that a slot must have (docs/gpus.md); 0: none is needed.")
    memory: Bytes | None = Field(
        None,
        description="Memory limit of all processes of a run on a slot: 500MB, 2GiB or bytes. A run that exceeds it is "
        "ended as a failure of the user's code. A process that started a separate session and outlived its parent is "
        "not counted. None: no limit.",
    )
    data_cache: Bytes | None = Field(
        None,
        description="Bytes of data that a trainer's process keeps in memory for later runs (hopyard.trainer.cached, input_fn): "
        "500MB, 2GiB or bytes. None: a quarter of `memory`, or, without one, half of the slot's share of the host's memory.",
    )


class ResourcesSpec(Section):
    """The resources of the cluster that the experiment may use."""

    slots: int | None = Field(
        None, ge=1, le=_MOST, description="Maximum number of slots that it uses at a time; none: its complete share."
    )
    concurrency: int | None = Field(
        None,
        ge=1,
        le=_MOST,
        description="Maximum number of jobs that train at a time, each on as many slots as its policy selects; none: no limit.",
    )
    per_job: JobResources = Field(JobResources(), description="What one slot must have.")
