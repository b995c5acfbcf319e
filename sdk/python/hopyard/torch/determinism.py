"""Process settings that affect the exact results of a training with PyTorch."""

from __future__ import annotations

import os

import torch


def prepare_process(device: torch.device, *, deterministic: bool) -> None:
    """Set the number of threads, the treatment of denormals and the choice of algorithms of PyTorch for this process.

    The number of threads is that of the environment variable OMP_NUM_THREADS, or unchanged if it is not set. Denormals are flushed to
    zero. All settings are made in every run, because an earlier run in this process may have left others.

    Args:
        device: Device of the training.
        deterministic: True: PyTorch may use only deterministic algorithms. For an operation that has none, it raises an error on the
            CPU, and warns on a GPU. False: it may use any algorithm, and on a GPU cuDNN selects the fastest by measurement.
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
