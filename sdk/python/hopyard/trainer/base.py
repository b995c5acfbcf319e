"""The interface of a training program: `Trainer`, which users derive from, and the `TrainerContext` of a run."""

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
    """The environment of a trainer, constant during one run.

    Attributes:
        seed: Seed for everything random in `build`, 0 or more. Equal configurations of an experiment have the same
            seed.
        scratch: Directory for temporary files. It is removed after the run.
        job: The job's id, an opaque string; empty outside a cluster. It must not influence the training.
        inputs: Path of the data partition that this run reads; None: the trainer finds its data itself.
        rank: Rank of this process in its gang, 0 to world_size - 1. Only rank 0 reports.
        world_size: Number of processes that train this job together.
        addresses: Hosts of all ranks, ordered by rank; empty for a single process.
        rendezvous: HOST:PORT on rank 0's host, reserved for this gang, at which the ranks connect to each other. Rank 0
            listens there with SO_REUSEADDR, as torch.distributed does. The value is new in every run, and empty for a
            single process.
        mode: `train`; `evaluate` for a run that only evaluates the data or a part of it; or `profile` for a run that
            only measures how long an iteration takes.
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
        """Check the values.

        Raises:
            ValueError: `seed` is negative, `rank` is not below `world_size`, or `mode` is unknown.
        """
        if self.seed < 0:
            raise ValueError(f"TrainerContext.seed is {self.seed}; allowed: 0 or more")
        if not 0 <= self.rank < self.world_size:
            raise ValueError(
                f"TrainerContext.rank is {self.rank} of world_size {self.world_size}; allowed: 0 <= rank < world_size"
            )
        if self.mode not in ("train", "evaluate", "profile"):  # The caller may not be type-checked.
            raise ValueError(f"TrainerContext.mode is {self.mode!r}; allowed: 'train', 'evaluate', 'profile'")

    def data(self, load: Callable[[Path], T]) -> T:
        """Return `load(path)` for the data partition of this run, and cache the result in memory for later runs in this process.

        See `hopyard.trainer.cached`.

        Args:
            load: Function that reads the partition at a path.

        Raises:
            ValueError: The run has no partition.
        """
        if self.inputs is None:
            raise ValueError("this run has no data partition: its policy gave its slot no input (docs/hopping.md)")
        return cached(self.inputs, load)


class Trainer(ABC):
    """Base class for training one configuration in iterations. Hopyard creates one object of the subclass for each run.

    Order of calls (methods in brackets are optional)::

        __init__()                    no arguments; `context` and `hyperparameters` are not available yet
        [build](hyperparameters)      create model and data from `context.seed`
        setup(hyperparameters, all)   apply the hyperparameters
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
           '-- repeated until the position that the policy allows
        [close]()

    A hyperparameter can change during training (a sequence). These methods always receive its current value. `build` and
    the first `setup` receive the value of position 0. Later, `setup` is called at each boundary where the value changes,
    before `train()`.

    `load` is therefore always called on a trainer that is built and set up. If a value differs from the one in the
    snapshot, `setup` applies it after `load`. `setup` can be called several times, so create objects that must persist,
    such as the model and the optimizer, in `build`, or in `setup` under `if changed == set(hyperparameters)`.

    A trainer is deterministic if the same seed, hyperparameters and position give the same metrics, however often the job
    is suspended. For that, `save` and `load` must cover everything that changes during training, including the states of
    random generators. Metrics map names to floats; NaN and infinite values are allowed and count as the worst.

    Example:
        class Parabola(Trainer):  # the four methods that every trainer has
            def setup(self, hyperparameters, changed):
                self.x, self.lr = 5.0, hyperparameters["lr"]
            def train(self):
                self.x -= self.lr * 2 * self.x
                return {"loss": self.x**2}
            def save(self, directory):
                (directory / "x").write_text(repr(self.x))
            def load(self, directory):
                self.x = float((directory / "x").read_text())
    """

    unit_per_iteration: int = 1
    """Number of the experiment's units (such as epochs) that one `train()` trains, 1 or more. A report is made after each."""

    evaluate_after_train: bool = True
    """Whether `evaluate()` is called after each `train()`, and its metrics are added to the report, if the class defines it."""

    stops_anywhere: ClassVar[bool] = False
    """Set it to True if `train()` trains exactly `self.units` units. A stop or a save point may then fall inside an
    iteration. If it is False, iterations are never shortened, and a stop takes effect at the first boundary at or after
    its position.
    """

    follows_sequences: ClassVar[bool] = False
    """Set it to True if a `train()` of several units calls `self.follow(position)` before each unit. If the trainer
    counts optimizer steps in `self.steps`, it must also call `follow` before each step. If it is False, sequences
    change values at boundaries only, and with `stops_anywhere` an iteration ends where a value changes.
    """

    gathers_partitions: ClassVar[bool] = False
    """Set it to True if, on a gang in which every rank has its partition (`context.inputs`), `train()` trains one pass
    over all partitions together and counts it as `context.world_size` units on every rank. A run with mode `profile`
    reports this to policies.
    """

    steps: int = 0
    """Number of optimizer steps so far. A trainer that follows sequences with `per: step` counts and saves it."""

    examples: int | None = None
    """Number of examples behind the metrics of `evaluate()`, which sets it. It weights the metrics of runs that evaluate parts."""

    # These defaults are on the class, so a subclass can define __init__ without calling this one.
    _context: TrainerContext | None = None
    _hyperparameters: Mapping[str, Any] = MappingProxyType({})
    _schedule: Schedule | None = None
    _position: int = 0
    _units: int = 1
    _advance: int | None = None
    _finished: bool = False

    @property
    def context(self) -> TrainerContext:
        """The context of this run, such as seed and rank. Available from `build` on.

        Raises:
            RuntimeError: Read in `__init__`, where it is not available yet.
        """
        if self._context is None:
            raise RuntimeError(
                f"{type(self).__qualname__}.context is not there yet in __init__(): use it in build() or later"
            )
        return self._context

    @property
    def hyperparameters(self) -> Mapping[str, Any]:
        """The current configuration, read-only, with the current value of each sequence. Available from `build` on."""
        return self._hyperparameters

    @property
    def position(self) -> int:
        """The number of units of the experiment (such as epochs) that the job has trained.

        During `train()`, it is the number before the current iteration.
        """
        return self._position

    @property
    def units(self) -> int:
        """Number of units that the current `train()` must train: the class attribute `unit_per_iteration`.

        It may be lower if the class attribute `stops_anywhere` is True: the iteration then ends early where the run stops or saves,
        or where a sequence changes a value.
        """
        return self._units

    @property
    def in_force(self) -> Mapping[str, Any]:
        """The hyperparameters that the training actually uses. The first report after a `setup` contains them.

        By default these are the configured values. Override the property to read the values from the objects that use them, such
        as the optimizer. A difference in the report then reveals a value that `setup` did not apply.
        """
        return dict(self._hyperparameters)

    def advance(self, units: int) -> None:
        """Declare, during `train()`, that this iteration trained `units` units of the experiment instead of `self.units`.

        Raises:
            ValueError: `units` is not a whole number of at least 1.
        """
        if not is_whole(units, least=1):
            raise ValueError(f"{type(self).__qualname__}.advance() got {units!r}; allowed: a whole number, 1 or more")
        self._advance = units

    def _advanced(self) -> int:
        """Return the number of units that the last iteration trained."""
        return self._units if self._advance is None else self._advance

    def follow(self, position: int) -> frozenset[str]:
        """Apply the values that sequences have at a position, and return the names of the hyperparameters that changed; empty: none.

        The values are applied through `setup`. The driver calls this method at each boundary; a trainer whose class sets
        `follows_sequences` to True also calls it in `train()`, before each unit.

        Args:
            position: Number of units that are trained before the values apply.
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
        """Declare that nothing is left to train: the current iteration is the job's last one."""
        self._finished = True

    def build(self, hyperparameters: Mapping[str, Any]) -> None:
        """Create the model and the data, deterministically from `self.context.seed`. Called once, first. The default does nothing."""

    @abstractmethod
    def setup(self, hyperparameters: Mapping[str, Any], changed: frozenset[str]) -> None:
        """Apply hyperparameters.

        Args:
            hyperparameters: The complete configuration from now on, read-only. The values are JSON values.
            changed: Names that were added, removed or given another value. In the first call these are all names; later
                calls never pass an empty set.
        """

    @abstractmethod
    def train(self) -> Mapping[str, float]:
        """Train one iteration and return its metrics (may be empty)."""

    def evaluate(self) -> Mapping[str, float]:
        """Measure the model without changing it, and return the metrics by name.

        It may set `self.examples`, the number of examples behind the metrics, by which the results of runs that
        each evaluate a part of the data are weighted.

        Raises:
            NotImplementedError: The class does not override this method; it then has no evaluation.
        """
        raise NotImplementedError(f"{type(self).__qualname__} does not define evaluate()")

    def profile(self) -> float:
        """Return how many seconds `train()` would take now, measured with less work.

        Only a run with mode `profile` calls it, for a policy that plans with the durations of iterations. The trainer is
        discarded afterwards.

        Raises:
            NotImplementedError: The class does not override this method.
        """
        raise NotImplementedError(f"{type(self).__qualname__} does not define profile()")

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Write the training state as files into `directory`, which exists and is empty. Links are not allowed.

        After the call, these files are the snapshot, and must not be changed.
        """

    @abstractmethod
    def load(self, directory: Path) -> None:
        """Restore the state that `save` wrote into `directory`. Do not change the files in it."""

    def close(self) -> None:
        """Release the resources of the run, such as files and device memory. Called once, at the end. The default does nothing."""
