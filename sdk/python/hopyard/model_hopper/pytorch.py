"""The handler of PyTorch models: seeds generators, and saves and loads a model with its optimizers when it moves to another node.

On CPUs with the same number of threads, training that moves between nodes gives the same bits as training on one node.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from hopyard.model_hopper.frameworks import Handler
from hopyard.model_hopper.gang import Gang
from hopyard.torch import seed_everything
from hopyard.torch.apply_hyperparameters import change_optimizer
from hopyard.torch.determinism import prepare_process
from hopyard.torch.state_io import read_state, unmapped, write_state
from hopyard.trainer import SnapshotStateError, TrainerContext

if TYPE_CHECKING:
    from hopyard.torch.gang import TorchGang

_FILE: Final = "torch.pt"
_FORMAT: Final = 1
_EXTRA: Final = "_extra_state"


class PyTorch(Handler):
    """The handler of a `torch.nn.Module` and its optimizer.

    The optimizer is an optimizer, None, or a list, tuple or dict of objects with `state_dict` and `load_state_dict`, such as
    optimizers, schedulers and a gradient scaler.

    Args:
        find_unused_parameters: On a gang, whether to search in every step for parameters without a gradient. Needed only if the loss
            does not depend on all parameters; it takes time.
        exchange_timeout: Maximum seconds (> 0) that a rank of a gang waits for another one, before the run is lost.
    """

    def __init__(self, *, find_unused_parameters: bool = False, exchange_timeout: float = 600.0) -> None:
        self._find_unused, self._timeout = find_unused_parameters, exchange_timeout

    def prepare(self) -> None:
        """Make PyTorch's settings in this process: OMP_NUM_THREADS threads if set, deterministic algorithms, no denormals."""
        prepare_process(torch.device("cuda" if torch.cuda.is_available() else "cpu"), deterministic=True)

    def seed(self, seed: int) -> None:
        """Seed Python's, NumPy's and PyTorch's global generators."""
        seed_everything(seed)

    def change(self, model: torch.nn.Module, optimizer: Any, name: str, old: object, new: object) -> None:
        """Set the option `name` of all optimizers that have it to the value `new`, which replaces `old`. The model is not changed."""
        for one in _parts(optimizer).values():
            if isinstance(one, torch.optim.Optimizer) and (name != "lr" or "lr" in one.param_groups[0]):
                change_optimizer(one, name, old, new)

    @contextmanager
    def evaluating(self, model: torch.nn.Module) -> Iterator[None]:
        """Provide a context without gradients, with the model in evaluation mode; restore its mode afterwards."""
        training = model.training
        model.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            model.train(training)

    def gang(self, context: TrainerContext, model: torch.nn.Module) -> Gang:
        """Join the other ranks for data-parallel training, with NCCL if the model is on a GPU, else with gloo.

        Raises:
            GangNotMetError: The ranks did not all join within `exchange_timeout` seconds.
        """
        from hopyard.torch.gang import TorchGang

        device = next((one.device for one in model.parameters()), torch.device("cpu"))
        return _Together(TorchGang(context, device, self._timeout), self._find_unused)

    def save(self, model: torch.nn.Module, optimizer: Any, directory: Path) -> None:
        """Save the state of the model and the optimizers in one file in `directory`."""
        weights = model.state_dict()
        state = {
            "format": _FORMAT,
            "model": weights,
            "model_versions": getattr(weights, "_metadata", {}),
            "optimizer": {name: one.state_dict() for name, one in _parts(optimizer).items()},
        }
        write_state(directory / _FILE, state)

    def load(self, model: torch.nn.Module, optimizer: Any, directory: Path) -> tuple[torch.nn.Module, Any]:
        """Set the states of `model` and `optimizer` from the file that `save` wrote in `directory`, and return both.

        Raises:
            SnapshotStateError: The file cannot be read.
            ValueError: `optimizer` does not have the same parts as the saved one.
        """
        path = directory / _FILE
        state = read_state(path, mapped=True)
        if state.get("format") != _FORMAT:
            raise SnapshotStateError(f"{path} has format {state.get('format')!r}; this version reads {_FORMAT}")
        parts = _parts(optimizer)
        if parts.keys() != state["optimizer"].keys():
            raise ValueError(
                f"model_fn returned the optimizers {sorted(parts)}, the snapshot has {sorted(state['optimizer'])}; "
                "allowed: the same ones for a configuration in every run"
            )
        # Parameters and buffers are copied into those of the model. A module keeps references to its extra state, so that is cloned.
        weights = OrderedDict(
            (name, unmapped(value) if name.endswith(_EXTRA) else value) for name, value in state["model"].items()
        )
        weights._metadata = state["model_versions"]  # type: ignore[attr-defined]  # where torch's modules look for it
        model.load_state_dict(weights)
        for name, one in parts.items():
            one.load_state_dict(unmapped(state["optimizer"][name]))
        return model, optimizer


class _Together(Gang):
    """A rank's access to a gang whose ranks exchange gradients with PyTorch's `DistributedDataParallel`."""

    def __init__(self, gang: TorchGang, find_unused: bool) -> None:
        self.rank, self.size = gang.rank, gang.size
        self._gang, self._find_unused = gang, find_unused

    @property
    def exchanges(self) -> int:
        return self._gang.exchanges

    def parallel(self, model: torch.nn.Module) -> torch.nn.Module:
        found = self._gang.wrapped(model, find_unused_parameters=self._find_unused, shares_buffers=False)
        found.register_forward_pre_hook(lambda *_: self.called() if torch.is_grad_enabled() else None)
        return found

    def weigh(self, share: float) -> None:
        self._gang.weigh(share)

    def gathered(self, numbers: Sequence[int]) -> list[list[int]]:
        return self._gang.gathered(numbers)

    def summed(self, sums: Mapping[str, float]) -> dict[str, float]:
        return self._gang.summed(sums)

    def exchanging(self) -> AbstractContextManager[object]:
        return self._gang.exchanging()

    def close(self) -> None:
        self._gang.close()


def _parts(optimizer: Any) -> dict[str, Any]:
    """Return the optimizers and other objects with a state in what `model_fn` returned as optimizer, by name.

    The name is the key in a dict, the index in a list or tuple, and empty for a single optimizer.

    Raises:
        TypeError: An object has no `state_dict` or `load_state_dict`.
    """
    if optimizer is None:
        return {}
    if isinstance(optimizer, Mapping):
        found = {str(name): one for name, one in optimizer.items()}
    elif isinstance(optimizer, list | tuple):
        found = {str(index): one for index, one in enumerate(optimizer)}
    else:
        found = {"": optimizer}
    for name, one in found.items():
        if not (hasattr(one, "state_dict") and hasattr(one, "load_state_dict")):
            raise TypeError(
                f"model_fn returned the optimizer {name!r}, a {type(one).__qualname__}, without state_dict and load_state_dict; "
                "allowed: an optimizer, or a list, tuple or dict of things with both"
            )
    return found
