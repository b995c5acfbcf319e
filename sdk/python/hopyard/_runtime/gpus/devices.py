"""The GPUs of a host as values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """A GPU, or a MIG instance (part) of a GPU, that a training process can use.

    Attributes:
        index: Index of the GPU, as `nvidia-smi` shows it; of a MIG instance: the index of its GPU.
        uuid: "GPU-..." or "MIG-..."; empty: unknown.
        model: Name of the model; empty: unknown.
        memory_bytes: Size of its memory; 0: unknown.
        parent: UUID of the GPU of a MIG instance; empty: this is no MIG instance.
        alias: Another name of a MIG instance, "MIG-GPU-UUID/GI/CI", which older drivers use; empty: none.
    """

    index: int
    uuid: str = ""
    model: str = ""
    memory_bytes: int = 0
    parent: str = ""
    alias: str = ""

    @property
    def name(self) -> str:
        """The value for CUDA_VISIBLE_DEVICES: the UUID, or the index if the UUID is unknown."""
        return self.uuid or str(self.index)


@dataclass(frozen=True, slots=True)
class GpuMeasurement:
    """The use of a GPU at one time.

    Attributes:
        uuid: UUID of the GPU or MIG instance.
        memory_used_bytes: Memory in use by all processes; None: unknown.
        utilization: Part of the last sampling interval in which it computed, 0 to 1; None: unknown, such as of MIG instances.
    """

    uuid: str
    memory_used_bytes: int | None = None
    utilization: float | None = None


@dataclass(frozen=True, slots=True)
class GpuInventory:
    """What is known about the GPUs of a host.

    Attributes:
        devices: The GPUs, by index; of a GPU in MIG mode: its MIG instances.
        checked: Whether NVML answered. If not, `devices` is empty, and a GPU may exist nevertheless.
        problems: Texts about GPUs that exist but cannot be used.
        unsupported: Texts about GPUs of other makers, which Hopyard does not support.
    """

    devices: tuple[GpuDevice, ...] = ()
    checked: bool = False
    problems: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()


def models_text(devices: Sequence[GpuDevice]) -> str:
    """Return the number and the models of devices, such as "2 x NVIDIA A100, 1 x NVIDIA L4"; empty without devices."""
    counts = Counter(device.model or "GPU of unknown model" for device in devices)
    return ", ".join(f"{count} x {model}" for model, count in counts.items())
