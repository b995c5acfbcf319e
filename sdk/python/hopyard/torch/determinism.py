"""Process settings that affect the exact results of a training with PyTorch."""

from __future__ import annotations

import os

import torch


def prepare_process(device: torch.device, *, deterministic: bool) -> None:
    """Set PyTorch's number of threads to OMP_NUM_THREADS (if set), flush denormals to zero, and choose algorithms for this process.

    The settings are always made, because an earlier run in this process may have left others.

    Args:
        device: Device of the training.
        deterministic: Whether to allow only deterministic algorithms; on a GPU, PyTorch only warns if it has none.
    """
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdecimal() and int(threads) >= 1:
        torch.set_num_threads(int(threads))
    torch.set_flush_denormal(True)  # Denormals are slow, and flushing them to zero changes results.
    on_gpu = device.type == "cuda"
    if deterministic and on_gpu:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is not deterministic without it.
    torch.use_deterministic_algorithms(deterministic, warn_only=on_gpu)
    torch.backends.cudnn.benchmark = not deterministic
