"""A base class for trainers with PyTorch, whose suspended trainings resume with bit-identical results."""

from __future__ import annotations

import hashlib
import time
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import torch
from torch.optim.lr_scheduler import LRScheduler

from hopyard.torch.apply_hyperparameters import change_optimizer, change_scheduler
from hopyard.torch.data import Data, ShuffledBatches, batch_of, length_of
from hopyard.torch.determinism import prepare_process
from hopyard.torch.prefetch import BatchQueue
from hopyard.torch.rng import capture_random_states, restore_random_states, seed_everything
from hopyard.torch.state_io import read_state, write_state
from hopyard.trainer import SnapshotStateError, Trainer

if TYPE_CHECKING:
    from hopyard.torch.gang import TorchGang

_FILE: Final = "torch.pt"
_FORMAT: Final = 1
_WARMING: Final = 3
_TIMED: Final = 10


class TorchTrainer(Trainer):
    """Base class of trainers that train a PyTorch model by gradient descent on shuffled batches.

    Implement `build_model`, `build_optimizer`, `train_dataset` and `loss`, and usually also `eval_dataset` and
    `metrics`. The other methods have defaults::

        class Digits(TorchTrainer):
            def build_model(self, hyperparameters): return Net(hyperparameters["channels"])
            def build_optimizer(self, model, hyperparameters): return SGD(model.parameters(), hyperparameters["lr"])
            def train_dataset(self): return images, labels
            def loss(self, model, batch): return cross_entropy(model(batch[0]), batch[1])

    A snapshot contains the model, the optimizer, the scheduler, the scaler, all random states, and the position in the
    shuffled data. On a CPU with the same number of threads, the results are bit for bit the same however often a training
    is suspended. On a GPU this is true where PyTorch has deterministic algorithms.

    On a gang (`docs/gangs.md`), each rank trains on its part of every batch with DistributedDataParallel, so the batch is the
    same on any number of slots. `evaluate()` is divided in the same way. A snapshot can continue on any number of
    slots. Results then differ by rounding, and by effects of smaller parts on batch normalization and dropout.

    These hyperparameters can change during training: `lr` and every other option of the optimizer, the numbers of the
    scheduler, and `batch_size`, also inside an epoch. Override `change` for other hyperparameters, or if `build_optimizer`
    uses other names. Sequences (hyperparameter values that depend on the position) change values at every unit, or with `per: step` at
    every optimizer step. `train()` reports `train_loss`; `evaluate()` reports `loss` and `metrics`.
    """

    stops_anywhere: ClassVar[bool] = True
    follows_sequences: ClassVar[bool] = True

    unit: ClassVar[Literal["epoch", "step"]] = "epoch"
    """The unit of a position: epochs, or optimizer steps (batches)."""

    batch_size: int = 32
    """Examples in a training batch if there is no hyperparameter `batch_size`."""

    eval_batch_size: int = 512
    """Examples in a batch of `evaluate()`. It does not influence the training."""

    smallest_batch: int = 2
    """If the rest of an epoch has fewer examples, they are added to the previous batch."""

    prefetch: int = 0
    """Number of batches that a background thread prepares in advance. Use it only if reading an example does not use
    the global random generators. `close` ends the thread, so an override of `close` must call `super().close()`.
    """

    amp_dtype: torch.dtype | None = None
    """If set, the forward pass runs under autocast with this type: `torch.bfloat16` or `torch.float16`."""

    deterministic: bool = True
    """Whether to use only deterministic algorithms. On a GPU, PyTorch warns if it has none; on a CPU it raises an error."""

    find_unused_parameters: bool = False
    """On a gang: look for parameters without a gradient in every step. Needed only if the loss omits some; it takes time."""

    exchange_timeout: float = 600.0
    """On a gang: seconds that a rank waits for another one in an exchange before the run fails."""

    model: torch.nn.Module
    """The model. On a gang, during `train_batch`, it is the DistributedDataParallel wrapper, which exchanges gradients."""

    optimizer: torch.optim.Optimizer
    scheduler: LRScheduler | None
    scaler: torch.amp.GradScaler | None
    batches: ShuffledBatches

    _queue: BatchQueue | None = None
    _gang: TorchGang | None = None
    _parallel: torch.nn.Module | None = None
    _applied: Mapping[str, Any] | None = None
    _built: Mapping[str, Any] = {}

    # --- methods to implement or override ---

    @abstractmethod
    def build_model(self, hyperparameters: Mapping[str, Any]) -> torch.nn.Module:
        """Return the untrained model. Its initial weights may use the global random generators, which are seeded before the call."""

    @abstractmethod
    def build_optimizer(self, model: torch.nn.Module, hyperparameters: Mapping[str, Any]) -> torch.optim.Optimizer:
        """Return the optimizer for `model`, whose parameters are already on their device."""

    @abstractmethod
    def train_dataset(self) -> Data:
        """Return the training examples. Called once per run. `self.context.inputs` is the path of the data partition, or None."""

    @abstractmethod
    def loss(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
        """Return the mean loss over the examples of a batch (a scalar tensor)."""

    def build_scheduler(
        self, optimizer: torch.optim.Optimizer, hyperparameters: Mapping[str, Any]
    ) -> LRScheduler | None:
        """Return a learning-rate scheduler that is stepped once per unit, or None for a constant rate."""
        return None

    def build_scaler(self, hyperparameters: Mapping[str, Any]) -> torch.amp.GradScaler | None:
        """Return a gradient scaler, or None for training without one.

        By default there is one if the class attribute `amp_dtype` (the type for mixed precision) is `float16`.
        """
        return torch.amp.GradScaler(self.device.type) if self.amp_dtype is torch.float16 else None

    def eval_dataset(self) -> Data | None:
        """Return the evaluation examples, or None for no evaluation. Called once per run."""
        return None

    def metrics(self, model: torch.nn.Module, batch: Any) -> Mapping[str, torch.Tensor | float]:
        """Return additional metrics of an evaluation batch. Each is a mean over its examples."""
        return {}

    def change(self, name: str, old: object, new: object) -> bool:
        """Apply one changed hyperparameter to the optimizer, the scheduler or the batches, and return whether one of them uses it.

        If the result is False, nothing was changed, and `setup` raises ValueError unless the model was built with the new value.
        Override this method for additional hyperparameters, and call the inherited one for the others.

        Args:
            name: Name of the hyperparameter.
            old: Value until now; None: the configuration did not contain it.
            new: Value from now on; None: the configuration no longer contains it.
        """
        if name == "batch_size":
            self.batches.batch_size = self.batch_size if new is None else new  # type: ignore[assignment]
            return True
        known = change_optimizer(self.optimizer, name, old, new)
        if self.scheduler is not None:
            known = change_scheduler(self.scheduler, name, old, new) or known
        return known

    def train_batch(self, batch: Any) -> torch.Tensor:
        """Train on one batch and return its mean loss. Override it for gradient clipping, accumulation and similar changes.

        On a gang, the batch is this rank's part; after `backward()` the gradients are those of the complete batch.
        """
        self.optimizer.zero_grad(set_to_none=True)
        with self.autocast():
            loss = self.loss(self.model, batch)
        if self.scaler is None:
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
        else:
            self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            self.scaler.step(self.optimizer)
            self.scaler.update()
        return loss.detach()

    # --- implementation of Trainer ---

    @property
    def device(self) -> torch.device:
        """The device of the model: the first visible GPU, or the CPU."""
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")

    @property
    def in_force(self) -> Mapping[str, Any]:
        """The hyperparameters, with the batch size and the optimizer's options (of parameter group 0) as they are really used."""
        values = dict(self.hyperparameters)
        group = self.optimizer.param_groups[0]
        for name in values:
            if name == "lr":
                rate = group.get("initial_lr", group["lr"])
                values[name] = rate.item() if isinstance(rate, torch.Tensor) else rate
            elif name == "batch_size":
                values[name] = self.batches.batch_size
            elif name in group:
                values[name] = group[name]
        return values

    def autocast(self) -> torch.autocast:
        """Return the context manager of the forward pass: autocast to the type `amp_dtype`, or no conversion if it is None."""
        return torch.autocast(self.device.type, dtype=self.amp_dtype, enabled=self.amp_dtype is not None)

    def build(self, hyperparameters: Mapping[str, Any]) -> None:
        """Seed all random generators, then create model, optimizer, scheduler, scaler and data; on a gang, join the other ranks."""
        prepare_process(self.device, deterministic=self.deterministic)
        seed_everything(self.context.seed)
        self.model = self.build_model(hyperparameters).to(self.device)
        if self.context.world_size > 1:
            from hopyard.torch.gang import TorchGang

            self._gang = TorchGang(self.context, self.device, self.exchange_timeout)
            with self._gang.exchanging():
                self._parallel = self._gang.wrapped(self.model, find_unused_parameters=self.find_unused_parameters)
        self.optimizer = self.build_optimizer(self.model, hyperparameters)
        self.scheduler = self.build_scheduler(self.optimizer, hyperparameters)
        self.scaler = self.build_scaler(hyperparameters)
        self._train_data = self.train_dataset()
        self._eval_data = self.eval_dataset()
        self.batches = ShuffledBatches(
            length_of(self._train_data),
            hyperparameters.get("batch_size", self.batch_size),
            seed=self.context.seed,
            smallest=self.smallest_batch,
        )
        if self._gang is not None:
            self._queue = BatchQueue(self._train_data, self.batches, ahead=self.prefetch, part=self._gang.part)
        else:
            self._queue = BatchQueue(self._train_data, self.batches, ahead=self.prefetch)
        self._built = hyperparameters
        self._draw_apart()

    def setup(self, hyperparameters: Mapping[str, Any], changed: frozenset[str]) -> None:
        """Call `change` for each changed hyperparameter; the first call of `setup` changes nothing, since `build` used all values.

        Raises:
            ValueError: `change` returned False for a hyperparameter, and its new value is not the one that `build` received.
        """
        if self._applied is not None:
            for name in sorted(changed):
                old, new = self._applied.get(name), hyperparameters.get(name)
                # Some values (a dropout rate) affect only the model. They are in force if the model was built with
                # them.
                built = name in self._built and name in hyperparameters and self._built[name] == new
                if not self.change(name, old, new) and not built:
                    raise ValueError(
                        f"hyperparameter {name!r} changed from {old!r} to {new!r} during training, but neither the "
                        f"optimizer nor the scheduler has it: override {type(self).__qualname__}.change()"
                    )
        self._applied = hyperparameters

    def train(self) -> dict[str, float]:
        """Train `self.units` epochs, or steps if the class sets `unit = "step"`; return `train_loss`, the mean loss per example."""
        self.model.train()
        if self._gang is None:
            total, examples = self._train_units()
            return {"train_loss": total.item() / examples}
        with self._gang.exchanging(), self._calling_parallel():
            total, examples = self._train_units()
            return {"train_loss": self._gang.summed({"total": total})["total"] / examples}

    def _train_units(self) -> tuple[torch.Tensor, int]:
        """Train, and return the sum of the losses of this rank's examples and the number of examples on all ranks."""
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        examples = 0
        per_step = self._schedule is not None and self._schedule.per_step
        for unit in range(self.position, self.position + self.units):
            self.follow(unit)
            while True:
                if per_step:
                    self.follow(unit)
                before = self.batches.epoch
                loss, mine, count = self._step()
                if mine:
                    total += loss.double() * mine
                examples += count
                if self.unit == "step" or self.batches.epoch != before:
                    break
            if self.scheduler is not None:
                self.scheduler.step()
        return total, examples

    def _step(self) -> tuple[torch.Tensor, int, int]:
        """Make one optimizer step. Return this rank's mean loss, its number of examples, and the number of examples on all ranks."""
        assert self._queue is not None  # `build` has set it.
        indices, batch = self._queue.next()
        mine = len(indices) if self._gang is None else self._gang.begin(indices)
        loss = self.train_batch(self._to_device(batch))
        self.steps += 1
        return loss, mine, len(indices)

    def profile(self) -> float:
        """Return an estimate of the seconds that `train()` takes, from a few steps, after some steps that are not measured.

        Each rank of a gang makes the same number of steps.
        """
        self.model.train()
        with self._gang.exchanging() if self._gang is not None else nullcontext(), self._calling_parallel():
            self._steps_ready(_WARMING)
            began = time.perf_counter()
            self._steps_ready(_TIMED)
            each = (time.perf_counter() - began) / _TIMED
        of_unit = 1 if self.unit == "step" else -(-self.batches.count // self.batches.batch_size)
        return each * of_unit * self.unit_per_iteration

    def _steps_ready(self, steps: int) -> None:
        losses = [self._step()[0] for _ in range(steps)]
        losses[-1].item()  # On a GPU, this waits until all queued work is done.

    @contextmanager
    def _calling_parallel(self) -> Iterator[None]:
        """Within the context, on a gang, let `model` be the wrapper that exchanges gradients."""
        if self._parallel is None:
            yield
            return
        alone, self.model = self.model, self._parallel
        try:
            yield
        finally:
            self.model = alone

    def _draw_apart(self) -> None:
        """Seed the random generators of ranks other than 0 differently. Rank 0 continues as a single process would."""
        if self.context.rank:
            text = f"{self.context.seed}/{self.steps}/{self.context.rank}"
            seed_everything(int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big"))

    def evaluate(self) -> dict[str, float]:
        """Return `loss` and the results of `metrics`, as means over the evaluation data; empty if there is no evaluation data.

        The states of the random generators are restored afterwards.
        """
        if self._eval_data is None:
            return {}
        count = length_of(self._eval_data)
        mine = torch.arange(count)
        # If there are fewer examples than ranks, each rank evaluates all of them.
        divided = self._gang is not None and count >= self._gang.size
        if self._gang is not None and divided:
            mine = self._gang.part(mine)
        sums: dict[str, torch.Tensor | float] = {}
        states = capture_random_states(self.device)
        self.model.eval()
        with torch.no_grad():
            for indices in torch.split(mine, self.eval_batch_size):
                batch = self._to_device(batch_of(self._eval_data, indices))
                with self.autocast():
                    values: dict[str, torch.Tensor | float] = {
                        "loss": self.loss(self.model, batch),
                        **self.metrics(self.model, batch),
                    }
                for name, value in values.items():
                    wide = value.double() if isinstance(value, torch.Tensor) else float(value)
                    sums[name] = sums.get(name, 0.0) + wide * len(indices)
        self.model.train()
        restore_random_states(states, self.device)
        self.examples = count
        if self._gang is not None and divided:
            with self._gang.exchanging():
                sums = {**self._gang.summed(sums)}
        return {name: float(value) / count for name, value in sums.items()}

    def save(self, directory: Path) -> None:
        """Write the complete training state into one file in `directory`."""
        weights = self.model.state_dict()
        state = {
            "format": _FORMAT,
            "hyperparameters": self._applied,
            "model": weights,
            "model_versions": getattr(weights, "_metadata", {}),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
            "data": self.batches.state(),
            "steps": self.steps,
            "random": capture_random_states(self.device),
        }
        write_state(directory / _FILE, state)

    def load(self, directory: Path) -> None:
        """Restore the training state from `directory`. Random states are restored last, so that nothing uses them before training.

        Raises:
            SnapshotStateError: The file cannot be read or has another format.
            ValueError: Only one of trainer and snapshot has a scheduler or scaler.
        """
        path = directory / _FILE
        state = read_state(path)
        if state.get("format") != _FORMAT:
            raise SnapshotStateError(f"{path} has format {state.get('format')!r}; this version reads {_FORMAT}")
        for name, present in (("scheduler", self.scheduler), ("scaler", self.scaler)):
            if (state[name] is None) != (present is None):
                raise ValueError(f"one of trainer and snapshot has a {name}; both or neither must have one")
        weights = OrderedDict(state["model"])
        weights._metadata = state["model_versions"]  # type: ignore[attr-defined]  # where torch's modules look for it
        self.model.load_state_dict(weights)
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        if self.scaler is not None:
            self.scaler.load_state_dict(state["scaler"])
        self.batches.load_state(state["data"])
        self.steps = state.get("steps", 0)
        self._applied = state["hyperparameters"]
        restore_random_states(state["random"], self.device)
        self._draw_apart()

    def close(self) -> None:
        """End the thread that prepares batches, and leave the gang, if there are any."""
        if self._queue is not None:
            self._queue.close()
        self._parallel = None
        if self._gang is not None:
            self._gang.close()

    def _to_device(self, batch: Any) -> Any:
        if isinstance(batch, torch.Tensor):
            return batch.to(self.device, non_blocking=True)
        if isinstance(batch, Mapping):
            return {key: self._to_device(value) for key, value in batch.items()}
        if isinstance(batch, list | tuple):
            return type(batch)(self._to_device(value) for value in batch)
        return batch
