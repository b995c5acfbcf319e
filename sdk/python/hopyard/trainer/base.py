"""The interface of a training program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeVar

from hopyard.sequences import Schedule
from hopyard.trainer.cache import cached
from hopyard.trainer.validation import changed_names, frozen_hyperparameters, is_whole

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerContext:
    """Where a trainer runs; constant during one run.

    Attributes:
        seed: seeds everything random in `build`; the same for equal configurations of an experiment, 0 or more.
        scratch: a directory for temporary files; it is gone after the run.
        job: the job's id, an opaque string; empty off the cluster. Must not influence the training.
        inputs: the data partition that this run reads, or None when the trainer finds its own data.
        rank: this process's place in a gang, 0 .. world_size - 1; only rank 0 reports.
        world_size: number of processes that train this job together.
        addresses: hosts of all ranks, by rank; empty for one process alone.
        rendezvous: HOST:PORT on rank 0's host, kept for this gang, where the ranks may meet (rank 0 listens, with
            SO_REUSEADDR, as torch.distributed does); new in every run. Empty for one process alone.
        mode: `train`, `evaluate` for a run that only evaluates (a part of) the data, or `profile` for one that only finds out how
            long an iteration takes.
    """

    seed: int
    scratch: Path
    job: str = ""
    inputs: Path | None = None
    rank: int = 0
    world_size: int = 1
    addresses: tuple[str, ...] = ()
    rendezvous: str = ""
    mode: Literal["train", "evaluate", "profile"] = "train"

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.seed < 0:
            raise ValueError(f"TrainerContext.seed is {self.seed}; allowed: 0 or more")
        if not 0 <= self.rank < self.world_size:
            raise ValueError(
                f"TrainerContext.rank is {self.rank} of world_size {self.world_size}; allowed: 0 <= rank < world_size"
            )
        if self.mode not in ("train", "evaluate", "profile"):  # a caller may not be type-checked
            raise ValueError(f"TrainerContext.mode is {self.mode!r}; allowed: 'train', 'evaluate', 'profile'")

    def data(self, load: Callable[[Path], T]) -> T:
        """What `load` makes of this run's partition, kept in memory for the runs that follow here (`hopyard.trainer.cached`).

        Raises:
            ValueError: The run has no partition.
        """
        if self.inputs is None:
            raise ValueError("this run has no data partition: its policy gave its machine no input (docs/hopping.md)")
        return cached(self.inputs, load)


class Trainer(ABC):
    """The training of one configuration, cut into iterations. Subclass it; Hopyard makes one object for each run.

    Order of calls (methods in brackets are optional)::

        __init__()                    no arguments; `context` and `hyperparameters` are not there yet
        [build](hyperparameters)      make model and data from `context.seed`
        setup(hyperparameters, all)   put the hyperparameters in force
           |
           |-- continues from a snapshot:   load(directory)
           |                                setup(hyperparameters, changed)    if some differ from the snapshot's
           v
        train() -> metrics            one iteration; then the position advances
        [evaluate]() -> metrics       after each train(), or alone in a run with mode `evaluate`
        [profile]() -> seconds        alone in a run with mode `profile`
           |
           |-- at a boundary, any number of times:  save(directory)
           |-- at a boundary where hyperparameters change:  setup(hyperparameters, changed)
           '-- again, up to where the policy lets it train
        [close]()

    A hyperparameter whose value changes over the training (a sequence) is here always its present value: of position 0 in
    `build` and the first `setup`; afterwards `setup` comes at each boundary where it changes, before `train()`.

    So `load` always finds a trainer that is made and set up, and a value that differs from the snapshot's is put in
    force after `load` has brought back the old one. `setup` may come again: what must survive (the model, the
    optimizer) belongs into `build`, or in `setup` under `if changed == set(hyperparameters)`.

    Whoever never changes hyperparameters during training needs four methods::

        class Parabola(Trainer):
            def setup(self, hyperparameters, changed):
                self.x, self.lr = 5.0, hyperparameters["lr"]
            def train(self):
                self.x -= self.lr * 2 * self.x
                return {"loss": self.x**2}
            def save(self, directory):
                (directory / "x").write_text(repr(self.x))
            def load(self, directory):
                self.x = float((directory / "x").read_text())

    A trainer is deterministic if the same seed, hyperparameters and position give the same metrics, however often it
    was suspended: everything that changes while it trains goes through `save` and `load`, random states too.
    Metrics map names to floats; NaN and infinities are legal and count as worst.
    """

    unit_per_iteration: int = 1
    """Units of the experiment (steps, epochs) that one `train()` trains: the reporting interval. 1 or more."""

    evaluate_after_train: bool = True
    """Whether `evaluate()`, where it is defined, follows each `train()` and its metrics join the report."""

    stops_anywhere: ClassVar[bool] = False
    """True promises that `train()` trains exactly `self.units` units, so that a stop or a save point may fall inside
    an iteration. Otherwise iterations are never cut, and a stop falls on the first boundary at or behind it."""

    follows_sequences: ClassVar[bool] = False
    """True promises that a `train()` of several units calls `self.follow(position)` before each unit (and each optimizer
    step, if it counts these in `self.steps`). Otherwise sequences act at boundaries; with `stops_anywhere`, an iteration
    ends where a value changes."""

    gathers_partitions: ClassVar[bool] = False
    """True promises that on a gang whose ranks have a partition each (`context.inputs`), `train()` trains one pass over all of them
    together, as `context.world_size` units, the same on every rank. A run with mode `profile` tells policies so."""

    steps: int = 0
    """Optimizer steps made so far, kept (and saved) by a trainer that follows sequences `per: step`."""

    examples: int | None = None
    """Set by `evaluate()`: the number of examples behind its metrics, their weight when parts are put together."""

    # Class-level defaults, so that a subclass may define __init__ without calling this one.
    _context: TrainerContext | None = None
    _hyperparameters: Mapping[str, Any] = MappingProxyType({})
    _schedule: Schedule | None = None
    _position: int = 0
    _units: int = 1
    _advance: int | None = None
    _finished: bool = False

    @property
    def context(self) -> TrainerContext:
        """Where this trainer runs; there from `build` on."""
        if self._context is None:
            raise RuntimeError(
                f"{type(self).__qualname__}.context is not there yet in __init__(): use it in build() or later"
            )
        return self._context

    @property
    def hyperparameters(self) -> Mapping[str, Any]:
        """The configuration as last given, read-only, with the present value of each sequence; there from `build` on."""
        return self._hyperparameters

    @property
    def position(self) -> int:
        """How far the job has trained, in units; during `train()` the position at which the iteration began."""
        return self._position

    @property
    def units(self) -> int:
        """How many units the current `train()` is to train: `unit_per_iteration`, less only with `stops_anywhere`."""
        return self._units

    @property
    def in_force(self) -> Mapping[str, Any]:
        """The hyperparameters the training really uses; the first report after `setup` echoes them.

        Override it to read them from where they act (an optimizer, say), so that a slip shows in the report.
        """
        return dict(self._hyperparameters)

    def advance(self, units: int) -> None:
        """Say in `train()` that it has trained `units` units (1 or more) in place of the usual number."""
        if not is_whole(units, least=1):
            raise ValueError(f"{type(self).__qualname__}.advance() got {units!r}; allowed: a whole number, 1 or more")
        self._advance = units

    def _advanced(self) -> int:
        """The units that the iteration just ended has trained."""
        return self._units if self._advance is None else self._advance

    def follow(self, position: int) -> frozenset[str]:
        """Put in force, through `setup`, what sequences say for the unit `position`; returns the names that changed.

        It is called at each boundary anyway; a trainer with `follows_sequences` calls it in `train()`.
        """
        if self._schedule is None or not self._schedule.sequences:
            return frozenset()
        values = frozen_hyperparameters(self._schedule.at(position, self.steps))
        changed = changed_names(self._hyperparameters, values)
        if changed:
            self._hyperparameters = values
            self.setup(values, changed)
        return changed

    def finish(self) -> None:
        """Say that there is nothing left to train: the current iteration is the job's last."""
        self._finished = True

    def build(self, hyperparameters: Mapping[str, Any]) -> None:
        """Make model and data, deterministically from `self.context.seed`. Called once, first. Does nothing here."""

    @abstractmethod
    def setup(self, hyperparameters: Mapping[str, Any], changed: frozenset[str]) -> None:
        """Put hyperparameters in force.

        Args:
            hyperparameters: the whole configuration from now on, read-only; values are what JSON can hold.
            changed: the names whose values (or presence) differ from what was in force: all of them in the first
                call, afterwards never empty.
        """

    @abstractmethod
    def train(self) -> Mapping[str, float]:
        """Train one iteration and return its metrics (may be empty)."""

    def evaluate(self) -> Mapping[str, float]:
        """Measure the model without changing it; may set `self.examples`. Not defined here."""
        raise NotImplementedError(f"{type(self).__qualname__} does not define evaluate()")

    def profile(self) -> float:
        """How many seconds `train()` would take now, found out with less effort. The model is thrown away afterwards. Not defined here.

        Called alone, in a run with mode `profile`: by a policy that plans with such times.
        """
        raise NotImplementedError(f"{type(self).__qualname__} does not define profile()")

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Write the training state as files into `directory`, which exists and is empty. No links in it.

        What lies there afterwards is the snapshot itself: nobody changes it any more.
        """

    @abstractmethod
    def load(self, directory: Path) -> None:
        """Take up the state that `save` wrote into `directory`, which is read-only by agreement."""

    def close(self) -> None:
        """Give back what the run holds (files, device memory); called once at its end. Does nothing here."""
