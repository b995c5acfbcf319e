"""Trainers for PyTorch, whose snapshots let a suspended training resume with bit-identical results."""

try:
    import torch as _torch  # noqa: F401 (only to say what is missing)
except ImportError as error:
    from hopyard._common.extras import install_command

    raise ImportError(
        f"hopyard.torch needs PyTorch, which Hopyard does not install by itself: {install_command('torch')}"
    ) from error

from hopyard.torch.data import Data, ShuffledBatches, batch_of, length_of
from hopyard.torch.prefetch import BatchQueue
from hopyard.torch.rng import capture_random_states, restore_random_states, seed_everything
from hopyard.torch.trainer import TorchTrainer

__all__ = [
    "BatchQueue",
    "Data",
    "ShuffledBatches",
    "TorchTrainer",
    "batch_of",
    "capture_random_states",
    "length_of",
    "restore_random_states",
    "seed_everything",
]
