"""What decides about bits in a process that trains with PyTorch."""

from __future__ import annotations

import os

import torch


def prepare_process(device: torch.device, *, deterministic: bool) -> None:
    """Settle threads, denormals and algorithms; a warm runner may have had another trainer before."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdecimal() and int(threads) >= 1:
        torch.set_num_threads(int(threads))
    torch.set_flush_denormal(True)  # denormals are slow, and whether they are flushed decides about bits
    on_gpu = device.type == "cuda"
    if deterministic and on_gpu:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS refuses to be deterministic
    torch.use_deterministic_algorithms(deterministic, warn_only=on_gpu)
    torch.backends.cudnn.benchmark = not deterministic
