"""Cerebro's functions as a trainer: read a partition, make a model, train it for one unit, evaluate it."""

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
"""A profile begins with one example of so many, and takes more if that tells too little."""

PROFILE_SECONDS: Final = 0.2
"""How long the part of a unit takes from whose time that of the whole is told."""

_MODEL: Final = "model"
_CONFIG: Final = "config.json"


class HoppingTrainer(Trainer):
    """Trains a model for one pass over the run's partition in each position: a training unit.

    Subclass it and write four methods, or give the same as functions to `trainer`. The partition is `context.inputs`; what
    `input_fn` makes of it stays in the memory of the runner for the next model (`hopyard.trainer.cached`). A unit depends on
    the model's state, the configuration, the partition, and the seed and position, from which each unit's random numbers are
    seeded anew: wherever it is trained it gives the same.

    A run with mode `evaluate` reports what `evaluate_fn` measures on its partition, with the number of examples, by which the
    parts of an evaluation are weighted.

    On a gang each rank has a partition, and a unit of all of them is trained at once, data-parallel (`docs/hopping.md`): for models of
    PyTorch whose `train_fn` takes its batches from `model_hopper.batches`.
    """

    gathers_partitions: ClassVar[bool] = True
    """As `Trainer` has it. A subclass with a `train` of its own says it anew, if that goes through this one's."""

    train_data: ClassVar[str | None] = None
    """What to train on in a run that has no partition (under a policy that gives none, or in `hopyard.local.fit`)."""

    evaluate_data: ClassVar[str | None] = None
    """What such a run evaluates on after each unit; None: it does not."""

    reshuffle: ClassVar[bool] = False
    """Whether each unit gets the examples of its partition in an order of its own, which follows from the experiment's seed, the
    configuration and the position: another one in each epoch, and the same wherever it is trained. For data whose examples can be
    taken apart: arrays, tensors, data frames, lists, and tuples, lists and dicts of them. It costs a copy of the partition."""

    handler: ClassVar[Handler | None] = None
    """How models are saved and loaded; None: by their type (`handler_for`)."""

    model: Any
    optimizer: Any
    _handler: Handler
    _found: ClassVar[Handler | None] = None
    _gang: Gang | None = None
    _parallel: Any = None

    def __init_subclass__(cls) -> None:
        """Nobody knows what a `train` of a subclass's own does on a gang."""
        super().__init_subclass__()
        if "train" in vars(cls) and "gathers_partitions" not in vars(cls):
            cls.gathers_partitions = False

    @abstractmethod
    def input_fn(self, path: Path) -> Any:
        """Read a partition and make it ready. Depends on the path alone; nobody changes what it returns."""

    @abstractmethod
    def model_fn(self, config: Config) -> Any:
        """Make an untrained model: alone, or `(model, optimizer)`. Random generators are seeded."""

    @abstractmethod
    def train_fn(self, data: Any, model: Any, optimizer: Any, config: Config) -> Mapping[str, float]:
        """Train the model for one pass over a partition, and return metrics (may be empty)."""

    def evaluate_fn(self, data: Any, model: Any, config: Config) -> Evaluation:
        """Measure the model on a partition: metrics that are means over its examples.

        Return `(metrics, examples)` where the number of examples does not show in `data`, which is an array, a tensor, a
        sequence, or a tuple, list or dict of such with one common length.
        """
        raise NotImplementedError(f"{type(self).__qualname__} has no evaluate_fn")

    # --- the trainer ---

    @property
    def evaluate_after_train(self) -> bool:  # type: ignore[override]  # it depends on the run
        """Evaluations are runs of their own, unless a run without partition has data for them."""
        return self.context.inputs is None and self.evaluate_data is not None

    def build(self, hyperparameters: Config) -> None:
        """Read the data, then make the model."""
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
        """Put what changed in force in the optimizer, if it knows it; `train_fn` gets the whole configuration."""
        for name in sorted(changed):
            old, new = self._applied.get(name), hyperparameters.get(name)
            if old != new:
                self._handler.change(self.model, self.optimizer, name, old, new)
        self._applied = hyperparameters

    def train(self) -> Mapping[str, float]:
        """Train one unit."""
        data = self._data
        if self.reshuffle:
            rng = np.random.default_rng(self._seed(f"order {self._here}"))
            data = examples.some(data, rng.permutation(counted(data)))
        return self._train(data)

    def profile(self) -> float:
        """How long a unit takes: told from the time for some of its examples, the first time apart, which makes things ready.

        On a gang each rank takes as large a part of its partition, and all go on until that takes long enough for them together.
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
        """The mean of the ranks' seconds, and how many of them have examples left."""
        if self._gang is None:
            return seconds, left
        with self._gang.exchanging():
            sums = self._gang.summed({"seconds": seconds, "left": left})
        return sums["seconds"] / self._gang.size, sums["left"]

    @property
    def _here(self) -> str:
        """What the chance of a unit follows from: on a gang ranks must not draw the same for different examples."""
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
        """Measure the model on this run's partition, or on `evaluate_data`."""
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
        """Write model and optimizer, and the configuration that is in force in them."""
        model = directory / _MODEL
        model.mkdir()
        self._handler.save(self.model, self.optimizer, model)
        (directory / _CONFIG).write_text(json.dumps(dict(self._applied), sort_keys=True), encoding="ascii")

    def load(self, directory: Path) -> None:
        """Take up model and optimizer."""
        self.model, self.optimizer = self._handler.load(self.model, self.optimizer, directory / _MODEL)
        self._applied = json.loads((directory / _CONFIG).read_text(encoding="ascii"))

    def close(self) -> None:
        """Leave the gang."""
        self._parallel = None
        if self._gang is not None:
            self._gang.close()

    def _make(self, hyperparameters: Config) -> None:
        """Make the model in a process that is prepared for its library, which its type tells: once it is there."""
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
    """Make a trainer of Cerebro's functions, for a module's top level: `TRAINER = model_hopper.trainer(input_fn=input_fn, ...)`.

    Args:
        input_fn: `(path) -> data`: reads a partition.
        model_fn: `(config) -> model` or `-> (model, optimizer)`: makes an untrained model.
        train_fn: `(data, model, optimizer, config) -> metrics`: trains it for one pass over the partition.
        evaluate_fn: `(data, model, config) -> metrics` or `-> (metrics, examples)`: measures it.
        handler: How models are saved and loaded; None: by their type.
        train_data: What to train on in runs without partition.
        evaluate_data: What such runs evaluate on after each unit.
        reshuffle: Whether each unit gets the examples of its partition in another order (`HoppingTrainer.reshuffle`).
        **unknown: Nothing else is taken: a name that is written wrong is answered with the right one.

    Returns:
        A class; the experiment file names it as its trainer.

    Raises:
        TypeError: An argument is none of these, or no function where it should be.
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
    """What `model_fn` returned, as model and optimizer."""
    if isinstance(made, tuple):
        if len(made) != 2:
            raise ValueError(f"model_fn returned {len(made)} values; allowed: a model, or (model, optimizer)")
        return made[0], made[1]
    return made, None
