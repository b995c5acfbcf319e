"""Detects the GPUs of this host by NVML, the management library of NVIDIA's driver, and measures their use.

The library `libnvidia-ml.so.1` is part of the driver. The package nvidia-ml-py (module `pynvml`) loads it by name.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from hopyard._runtime.gpus.devices import GpuDevice, GpuInventory, GpuMeasurement

T = TypeVar("T")

_KFD: Final = Path("/dev/kfd")
_NVIDIA: Final = (Path("/dev/nvidiactl"), Path("/proc/driver/nvidia/version"))
_LONGEST: Final = 200


def detect() -> GpuInventory:
    """Return the GPUs of this host. If NVML or the driver is missing or fails, no error is raised: see `GpuInventory.checked`.

    It may take seconds if the driver must be initialized.
    """
    return _nvidia(unsupported_gpus())


def unsupported_gpus(kfd: Path = _KFD, system: str = "", machine: str = "") -> tuple[str, ...]:
    """Return one text for each kind of GPU that this host has and that Hopyard does not support.

    Args:
        kfd: The device file of AMD's driver.
        system: The operating system; empty: that of this host.
        machine: The processor architecture; empty: that of this host.
    """
    found = []
    if kfd.exists():
        found.append(f"an AMD GPU ({kfd}): ROCm is not supported, so Hopyard makes no GPU slots for it")
    if (system or platform.system()) == "Darwin" and (machine or platform.machine()) == "arm64":
        found.append("an Apple GPU: Metal is not supported, so Hopyard makes no GPU slots for it")
    return tuple(found)


def measure(devices: Iterable[GpuDevice]) -> list[GpuMeasurement]:
    """Return the present use of devices that `detect` found, in their order. A device that NVML cannot measure is left out."""
    import pynvml

    found = []
    for device in devices:
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(device.uuid)
        except pynvml.NVMLError:
            continue
        memory = _optional(pynvml.nvmlDeviceGetMemoryInfo, handle)
        busy = _optional(pynvml.nvmlDeviceGetUtilizationRates, handle)
        if memory is not None or busy is not None:
            found.append(
                GpuMeasurement(
                    device.uuid,
                    None if memory is None else int(memory.used),
                    None if busy is None else min(int(busy.gpu), 100) / 100,
                )
            )
    return found


def _nvidia(unsupported: tuple[str, ...]) -> GpuInventory:
    driver = next((path for path in _NVIDIA if path.exists()), None)
    try:
        import pynvml
    except ImportError:
        missing = (f"NVIDIA's driver is loaded ({driver}), but the Python package nvidia-ml-py is not installed",)
        return GpuInventory(problems=missing if driver else (), unsupported=unsupported)
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        missing = (
            f"NVIDIA's driver is loaded ({driver}), but its library libnvidia-ml.so.1 is not found; a container needs "
            "NVIDIA's container toolkit, such as docker run --gpus all",
        )
        return GpuInventory(problems=missing if driver else (), unsupported=unsupported)
    except pynvml.NVMLError as error:
        # The library without the driver: an image that was made for computers with GPUs.
        absent = isinstance(error, pynvml.NVMLError_DriverNotLoaded) and driver is None
        failed = () if absent else (f"NVML, the library of NVIDIA's driver, fails: {error}; run nvidia-smi",)
        return GpuInventory(problems=failed, unsupported=unsupported)
    devices: list[GpuDevice] = []
    problems: list[str] = []
    try:
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        return GpuInventory(problems=(f"NVML reports no number of GPUs: {error}",), unsupported=unsupported)
    for index in range(count):
        try:
            found = list(_devices_of(index))
        except pynvml.NVMLError as error:
            problems.append(f"GPU {index} cannot be used: {error}")
            continue
        if not found:
            problems.append(f"GPU {index} is in MIG mode and has no MIG instance; nvidia-smi mig -cgi creates one")
        devices += found
    return GpuInventory(tuple(devices), checked=True, problems=tuple(problems), unsupported=unsupported)


def _devices_of(index: int) -> Iterator[GpuDevice]:
    """Yield the GPU with this index, or its MIG instances if it is in MIG mode."""
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    whole = _device(handle, index)
    mode = _optional(pynvml.nvmlDeviceGetMigMode, handle)
    if mode is None or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        yield whole
        return
    for number in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except pynvml.NVMLError_NotFound:
            continue
        instance = _optional(pynvml.nvmlDeviceGetGpuInstanceId, part)
        compute = _optional(pynvml.nvmlDeviceGetComputeInstanceId, part)
        alias = "" if instance is None or compute is None else f"MIG-{whole.uuid}/{instance}/{compute}"
        yield _device(part, index, whole.uuid, alias)


def _device(handle: Any, index: int, parent: str = "", alias: str = "") -> GpuDevice:
    import pynvml

    uuid = _text(pynvml.nvmlDeviceGetUUID(handle))
    model = _text(_optional(pynvml.nvmlDeviceGetName, handle) or "")
    memory = _optional(pynvml.nvmlDeviceGetMemoryInfo, handle)
    return GpuDevice(index, uuid, model, 0 if memory is None else int(memory.total), parent, alias)


def _text(value: str | bytes) -> str:
    """Return a text of NVML without unprintable characters, cut to `_LONGEST` characters."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    return "".join(character for character in text if character.isprintable())[:_LONGEST]


def _optional(query: Callable[[Any], T], handle: Any) -> T | None:
    """Return the result of an NVML query for a handle; None: it failed with an NVML error, such as one for an unsupported query."""
    import pynvml

    try:
        return query(handle)
    except pynvml.NVMLError:
        return None
