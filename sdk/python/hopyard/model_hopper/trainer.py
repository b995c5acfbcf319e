"""A trainer that consists of Cerebro's functions: read a partition, create a model, train it for one unit, evaluate it."""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Never, TypeAlias

import numpy as np

from hopyard._common.plugins import wrong_parameters
from hopyard.model_hopper import examples
from hopyard.model_hopper.batches import counted, sharing
from hopyard.model_hopper.frameworks import Handler, handler_for
from hopyard.model_hopper.gang import Gang
from hopyard.trainer import Trainer, cached
from hopyard.trainer.errors import TrainerPhase
from hopyard.trainer.validation import checked_metrics

Config: TypeAlias = Mapping[str, Any]
Evaluation: TypeAlias = "Mapping[str, float] | tuple[Mapping[str, float], int]"

InputFn: TypeAlias = Callable[[Path], Any]
ModelFn: TypeAlias = Callable[[Config], Any]
TrainFn: TypeAlias = Callable[[Any, Any, Any, Config], Mapping[str, float]]
EvaluateFn: TypeAlias = Callable[[Any, Any, Config], Evaluation]

PROFILED: Final = 64
"""A profile begins with 1/`PROFILED` of the examples, and uses more if they take less than `PROFILE_SECONDS`."""

PROFILE_SECONDS: Final = 0.2
"""Minimum seconds of the part of a unit from whose duration that of the unit is extrapolated."""

_MODEL: Final = "model"
_CONFIG: Final = "config.json"


class HoppingTrainer(Trainer):
    """Trains a model in units: at each position one pass over the run's data partition.

    Subclass it and implement its methods, or pass the same as functions to `trainer`. The path of the partition is
    `context.inputs`; the result of `input_fn` stays in the runner's memory for the next model (`hopyard.trainer.cached`). The result
    of a unit depends on the model's state, the configuration, the partition, the seed and the position: random generators are seeded
    for each unit from seed and position. It is therefore the same on every node.

    A run with mode `evaluate` reports the metrics of `evaluate_fn` on its partition and the number of examples, by which the
    results of several partitions are weighted.

    On a gang each rank has a partition, and the unit trains on all of them at once, data-parallel (`docs/hopping.md`). This is
    supported for PyTorch models whose `train_fn` takes its batches from `model_hopper.batches`.
    """

    gathers_partitions: ClassVar[bool] = True
    """As in `Trainer`. A subclass that overrides `train` must set it to True itself, if its `train` calls this class's."""

    train_data: ClassVar[str | None] = None
    """Path of the training data of a run without partition (with a policy that assigns none, or in `hopyard.local.fit`)."""

    evaluate_data: ClassVar[str | None] = None
    """Path of the data on which a run without partition evaluates after each unit; None: it does not evaluate."""

    reshuffle: ClassVar[bool] = False
    """Whether each unit gets the examples of its partition in a different order, which depends only on the experiment's seed, the
    configuration and the position: it differs between epochs and is the same on every node. The data must be an array, a tensor, a
    data frame, a list, or a tuple, list or dict of these. It costs a copy of the partition."""

    handler: ClassVar[Handler | None] = None
    """The handler of the models; None: chosen by their type (`handler_for`)."""

    model: Any
    optimizer: Any
    _handler: Handler
    _found: ClassVar[Handler | None] = None
    _gang: Gang | None = None
    _parallel: Any = None

    def __init_subclass__(cls) -> None:
        """Set `gathers_partitions` to False in a subclass that overrides `train` without setting it.

        The attribute says whether `train`, on a gang whose ranks have one partition each, trains on all of them at once. For the
        subclass's `train` this is unknown.
        """
        super().__init_subclass__()
        if "train" in vars(cls) and "gathers_partitions" not in vars(cls):
            cls.gathers_partitions = False

    @abstractmethod
    def input_fn(self, path: Path) -> Any:
        """Read and preprocess the partition at `path`, and return the data.

        The result must depend on the path alone. `train_fn` and `evaluate_fn` must not modify it, because later models use it too.
        """

    @abstractmethod
    def model_fn(self, config: Config) -> Any:
        """Return a new, untrained model for a configuration, or `(model, optimizer)`. Random generators are seeded before the call."""

    @abstractmethod
    def train_fn(self, data: Any, model: Any, optimizer: Any, config: Config) -> Mapping[str, float]:
        """Train the model for one pass over a partition, and return metrics (may be empty).

        Args:
            data: The partition, as `input_fn` returned it.
            model: The model, in its present state.
            optimizer: The optimizer that `model_fn` returned; None: it returned none.
            config: The hyperparameters.
        """

    def evaluate_fn(self, data: Any, model: Any, config: Config) -> Evaluation:
        """Evaluate the model on a partition, and return metrics that are means over its examples.

        Return `(metrics, examples)` if the number of examples cannot be determined from `data`: if it is not an array, a tensor, a
        sequence, or a tuple, list or dict of these with one common length.

        Args:
            data: The partition, as `input_fn` returned it.
            model: The model.
            config: The hyperparameters.
        """
        raise NotImplementedError(f"{type(self).__qualname__} has no evaluate_fn")

    # --- the trainer ---

    @property
    def evaluate_after_train(self) -> bool:  # type: ignore[override]  # it depends on the run
        """Whether a training run evaluates after each unit: only if it has no partition and the class sets `evaluate_data`.

        `evaluate_data` is the path of the data on which such runs evaluate. Otherwise evaluations are separate runs.
        """
        return self.context.inputs is None and self.evaluate_data is not None

    def build(self, hyperparameters: Config) -> None:
        """Read the data, create the model, and join the gang if the run has several ranks.

        Raises:
            NotImplementedError: The run has several ranks, and evaluates or has no partition.
            ValueError: The run has one rank and no partition, and the class does not set the path of its data: `evaluate_data`
                if the run evaluates, else `train_data`.
        """
        several, evaluates = self.context.world_size > 1, self.context.mode == "evaluate"
        if several and (evaluates or self.context.inputs is None):
            raise NotImplementedError(
                f"{type(self).__qualname__} was placed on {self.context.world_size} slots; allowed: one, or in training one for "
                "each of several partitions"
            )
        self._data = self._read(
            self.evaluate_data if evaluates else self.train_data, "evaluate" if evaluates else "train"
        )
        self._make(hyperparameters)
        self._applied = hyperparameters
        if several:
            self._gang = self._handler.gang(self.context, self.model)
            self.unit_per_iteration = self.context.world_size

    def setup(self, hyperparameters: Config, changed: frozenset[str]) -> None:
        """Pass each changed hyperparameter to the handler (`Handler.change`); `train_fn` receives the whole configuration."""
        for name in sorted(changed):
            old, new = self._applied.get(name), hyperparameters.get(name)
            if old != new:
                self._handler.change(self.model, self.optimizer, name, old, new)
        self._applied = hyperparameters

    def train(self) -> Mapping[str, float]:
        """Train one unit, and return the metrics of `train_fn`."""
        data = self._data
        if self.reshuffle:
            rng = np.random.default_rng(self._seed(f"order {self._here}"))
            data = examples.some(data, rng.permutation(counted(data)))
        return self._train(data)

    def profile(self) -> float:
        """Return an estimate of the seconds that a unit takes.

        It is extrapolated from the time for a part of the examples, at first 1/64, after one pass over this part that is not measured.
        The part is enlarged until its time, on a gang the mean of all ranks, is at least `PROFILE_SECONDS` (0.2 s), or until it is the
        whole partition. On a gang, each rank uses the same fraction of its partition.
        """
        total = counted(self._data)
        few = -(-total // PROFILED)
        self._timed(few)
        while True:
            seconds = self._timed(few)
            spent, left = self._together(seconds, float(few < total))
            if spent >= PROFILE_SECONDS or not left:
                return seconds * total / max(few, 1)
            few = min(4 * few, total)

    def _timed(self, few: int) -> float:
        data = examples.some(self._data, slice(few))
        began = time.perf_counter()
        self._train(data)
        return time.perf_counter() - began

    def _together(self, seconds: float, left: float) -> tuple[float, float]:
        """Return the mean of a measured time over all ranks, and the number of ranks that have examples left to measure with.

        Args:
            seconds: The time that this rank measured, in seconds.
            left: 1 if this rank has examples left, else 0.
        """
        if self._gang is None:
            return seconds, left
        with self._gang.exchanging():
            sums = self._gang.summed({"seconds": seconds, "left": left})
        return sums["seconds"] / self._gang.size, sums["left"]

    @property
    def _here(self) -> str:
        """The text from which the seed of a unit is derived: the position, and the rank unless it is 0.

        Ranks must not draw the same random numbers for different examples.
        """
        return f"{self.position}/{self.context.rank}" if self.context.rank else str(self.position)

    def _train(self, data: Any) -> Mapping[str, float]:
        self._handler.seed(self._seed(self._here))
        if self._gang is None:
            return self.train_fn(data, self.model, self.optimizer, self.hyperparameters)
        with self._gang.exchanging():
            if self._parallel is None:
                self._parallel = self._gang.parallel(self.model)
            with sharing(self._gang):
                returned = self.train_fn(data, self._parallel, self.optimizer, self.hyperparameters)
            name, phase = type(self).__qualname__, TrainerPhase.TRAIN
            metrics = checked_metrics(returned, trainer=name, phase=phase, position=self.position)
            return self._gang.mean(metrics, counted(data))

    def evaluate(self) -> Mapping[str, float]:
        """Evaluate the model and return the metrics of `evaluate_fn`.

        The data are this run's partition or, if it has none, the data at the path `evaluate_data` of the class.

        Raises:
            ValueError: There is neither a partition nor `evaluate_data`.
        """
        data = self._data
        if self.context.mode != "evaluate":
            data = self._read(self.evaluate_data, "evaluate")
        self._handler.seed(self._seed(f"evaluate {self.position}"))
        with self._handler.evaluating(self.model):
            found = self.evaluate_fn(data, self.model, self.hyperparameters)
        if isinstance(found, tuple):
            metrics, self.examples = found
        else:
            metrics, self.examples = found, examples.count(data)
        if self.examples is None:
            raise ValueError(
                f"how many examples a {type(data).__qualname__} holds does not show; {type(self).__qualname__}.evaluate_fn is to "
                "return (metrics, examples)"
            )
        return metrics

    def save(self, directory: Path) -> None:
        """Write the model, the optimizer, and the hyperparameters applied to them into `directory`."""
        model = directory / _MODEL
        model.mkdir()
        self._handler.save(self.model, self.optimizer, model)
        (directory / _CONFIG).write_text(json.dumps(dict(self._applied), sort_keys=True), encoding="ascii")

    def load(self, directory: Path) -> None:
        """Restore what `save` wrote into `directory`: the model, the optimizer, and the hyperparameters applied to them."""
        self.model, self.optimizer = self._handler.load(self.model, self.optimizer, directory / _MODEL)
        self._applied = json.loads((directory / _CONFIG).read_text(encoding="ascii"))

    def close(self) -> None:
        """Leave the gang, if the run has one."""
        self._parallel = None
        if self._gang is not None:
            self._gang.close()

    def _make(self, hyperparameters: Config) -> None:
        """Set `self.model` and `self.optimizer` to new ones, created after preparing and seeding the process for the model's library.

        Unless `handler` is set, the library is known only from the type of a model. The first model of a process is therefore created
        twice: to find the library, and then in the prepared process.
        """
        cls = type(self)
        handler = self.handler or cls._found
        while True:
            if handler is not None:
                handler.prepare()
                handler.seed(self._seed("model"))
            self.model, self.optimizer = _pair(self.model_fn(hyperparameters))
            found = self.handler or handler_for(self.model)
            if type(found) is type(handler):
                break
            handler = cls._found = found
        self._handler = found

    def _read(self, instead: str | None, purpose: str) -> Any:
        path = self.context.inputs if self.context.inputs is not None else instead
        if path is None:
            raise ValueError(
                f"this run has no partition to {purpose} on: use a policy that gives one (policy: mop, with data), or say "
                f"{purpose}_data in {type(self).__qualname__}"
            )
        return cached(path, self.input_fn)

    def _seed(self, purpose: str) -> int:
        digest = hashlib.sha256(f"{self.context.seed}/{purpose}".encode()).digest()
        return int.from_bytes(digest[:7], "big")


def trainer(
    *,
    input_fn: InputFn,
    model_fn: ModelFn,
    train_fn: TrainFn,
    evaluate_fn: EvaluateFn | None = None,
    handler: Handler | None = None,
    train_data: str | None = None,
    evaluate_data: str | None = None,
    reshuffle: bool = False,
    **unknown: Never,
) -> type[HoppingTrainer]:
    """Return a trainer class that consists of Cerebro's functions.

    Call this at the top level of a module: `TRAINER = model_hopper.trainer(input_fn=input_fn, ...)`.

    Args:
        input_fn: `(path) -> data`: reads a partition.
        model_fn: `(config) -> model` or `-> (model, optimizer)`: creates an untrained model.
        train_fn: `(data, model, optimizer, config) -> metrics`: trains the model for one pass over the partition.
        evaluate_fn: `(data, model, config) -> metrics` or `-> (metrics, examples)`: evaluates the model; None: the trainer cannot
            evaluate.
        handler: Saves and loads models; None: chosen by their type (`handler_for`).
        train_data: Path of the training data of runs without partition; None: such runs fail.
        evaluate_data: Path of the data on which such runs evaluate after each unit; None: they do not evaluate.
        reshuffle: Whether each unit gets the examples of its partition in another order (`HoppingTrainer.reshuffle`).
        **unknown: Not accepted; the error names the valid arguments.

    Returns:
        A subclass of `HoppingTrainer`; the experiment file names it as its trainer.

    Raises:
        TypeError: An argument is unknown, or is not a function where one is required.
    """
    if unknown:
        takes = [name for name in inspect.signature(trainer).parameters if name != "unknown"]
        raise TypeError(f"model_hopper.trainer {wrong_parameters(unknown, takes)}")
    for name, given in (
        ("input_fn", input_fn),
        ("model_fn", model_fn),
        ("train_fn", train_fn),
        ("evaluate_fn", evaluate_fn),
    ):
        if not callable(given) and not (name == "evaluate_fn" and given is None):
            raise TypeError(f"model_hopper.trainer: {name} is {given!r}; allowed: a function")
    body: dict[str, Any] = {
        "__doc__": f"Made by model_hopper.trainer of {getattr(train_fn, '__qualname__', train_fn)}.",
        "__module__": sys._getframe(1).f_globals.get("__name__", __name__),
        "input_fn": staticmethod(input_fn),
        "model_fn": staticmethod(model_fn),
        "train_fn": staticmethod(train_fn),
        "handler": handler,
        "train_data": train_data,
        "evaluate_data": evaluate_data,
        "reshuffle": reshuffle,
    }
    if evaluate_fn is not None:
        body["evaluate_fn"] = staticmethod(evaluate_fn)
    return type("HoppingTrainer", (HoppingTrainer,), body)


def _pair(made: Any) -> tuple[Any, Any]:
    """Return `made`, the result of `model_fn`, as model and optimizer (None if it returned only a model).

    Raises:
        ValueError: The result is a tuple of another length than two.
    """
    if isinstance(made, tuple):
        if len(made) != 2:
            raise ValueError(f"model_fn returned {len(made)} values; allowed: a model, or (model, optimizer)")
        return made[0], made[1]
    return made, None
