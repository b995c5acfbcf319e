"""Selects the GPUs that a node uses: those that CUDA_VISIBLE_DEVICES shows, of which the option --gpus names some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hopyard._runtime.gpus.devices import GpuDevice, GpuInventory
from hopyard.errors import InvalidInput

VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
ALL: Final = "all"
NONE: Final = "none"
_HIDDEN: Final = frozenset({"", "-1", "nodevfiles", "void", "none"})
"""Values of the variable with which CUDA shows no device."""


def visible_devices(devices: Sequence[GpuDevice], variable: str | None) -> tuple[tuple[GpuDevice, ...], str]:
    """Return the devices that CUDA shows to a process with this value of CUDA_VISIBLE_DEVICES, in its order.

    The value lists indices, UUIDs and the beginnings of UUIDs. Like CUDA, an entry that names no device hides itself and
    all later entries, and a device that is named twice hides all.

    Args:
        devices: All devices.
        variable: The value; None: the variable is not set, so all devices are visible.

    Returns:
        The visible devices, and a warning about the value; empty: no warning.
    """
    if variable is None:
        return tuple(devices), ""
    if variable.strip().lower() in _HIDDEN:
        return (), ""
    found: list[GpuDevice] = []
    for entry in (part.strip() for part in variable.split(",")):
        named = named_devices(devices, entry)
        if not named:
            warning = (
                f"{VARIABLE}={variable}: {entry!r} names no GPU of this computer; CUDA ignores it and what follows"
            )
            return tuple(found), "" if entry.startswith("-") else warning
        if any(device in found for device in named):
            return (), f"{VARIABLE}={variable}: {entry!r} is named twice; CUDA then shows no GPU"
        found += named
    by_index = variable.strip()[0].isdigit()
    mixed = by_index and len({device.model for device in devices}) > 1
    order = (
        f"{VARIABLE}={variable}: indices are those of nvidia-smi here; CUDA itself may number GPUs of different models in "
        "another order (CUDA_DEVICE_ORDER); UUIDs are unambiguous"
    )
    return tuple(found), order if mixed else ""


def named_devices(devices: Sequence[GpuDevice], entry: str) -> list[GpuDevice]:
    """Return the device that an index, a UUID or the beginning of a UUID names. Empty: there is none, or more than one.

    A GPU in MIG mode stands for all its MIG instances.
    """
    if entry.isdecimal():
        return [device for device in devices if device.index == int(entry)]
    if entry.startswith("MIG-"):
        exact = [device for device in devices if device.parent and entry in (device.uuid, device.alias)]
        begun = [device for device in devices if device.parent and device.uuid.startswith(entry)]
        return exact or (begun if len(begun) == 1 else [])
    if not entry.startswith("GPU-"):
        return []
    begun = [device for device in devices if (device.parent or device.uuid).startswith(entry)]
    return begun if len({device.parent or device.uuid for device in begun}) == 1 else []


def select_devices(
    inventory: GpuInventory, option: str | None, variable: str | None
) -> tuple[tuple[GpuDevice, ...], list[str]]:
    """Return the devices that a node uses, and warnings.

    Args:
        inventory: The GPUs of this host.
        option: The value of --gpus: "all", "none", or indices and UUIDs with commas between; None: not given, which means
            all visible devices, if there are any.
        variable: The value of CUDA_VISIBLE_DEVICES; None: not set.

    Raises:
        InvalidInput: The option names a device that does not exist or is not visible, or names one twice; or it is "all" and
            there is none.
    """
    words = (option or "").strip()
    if option is not None and words.lower() in ("", NONE):
        return (), []
    if option is not None and words.lower() != ALL:
        _check_form(words)
        if not inventory.checked:
            if any(not entry.strip().isdecimal() for entry in words.split(",")):
                raise InvalidInput(f"--gpus {words}: {absence(inventory, variable)}")
            unchecked = tuple(GpuDevice(int(entry)) for entry in words.split(","))
            return unchecked, [f"--gpus {words}: NVML does not answer on this computer, so the indices are not checked"]
    seen, warning = visible_devices(inventory.devices, variable)
    warnings = [warning] if warning else []
    if option is None:
        return seen, warnings
    if words.lower() == ALL:
        if not seen:
            raise InvalidInput(f"--gpus {words}: {absence(inventory, variable)}; --gpus none trains on CPUs")
        return seen, warnings
    chosen: list[GpuDevice] = []
    for entry in (part.strip() for part in words.split(",")):
        named = named_devices(seen, entry)
        if not named:
            hidden = named_devices(inventory.devices, entry)
            why = f"is hidden by {VARIABLE}={variable}" if hidden else "is no GPU of this computer"
            allowed = ", ".join(_names(seen)) or "none"
            raise InvalidInput(f"--gpus {words}: {entry} {why}; allowed are {allowed} (hopyard doctor lists the GPUs)")
        chosen += [device for device in named if device not in chosen]
    return tuple(chosen), warnings


def absence(inventory: GpuInventory, variable: str | None) -> str:
    """Return why a node has no GPU to use, as a clause without a full stop for the end of an error message.

    Args:
        inventory: The GPUs of this host.
        variable: The value of CUDA_VISIBLE_DEVICES, which hides all GPUs if `inventory` has any; None: not set.
    """
    if inventory.devices:
        shown = variable if variable and variable.strip() else "(empty)"
        return f"{VARIABLE} is {shown}, which hides all {len(inventory.devices)} GPUs of this computer"
    reasons = [*inventory.problems, *(f"it has {text}" for text in inventory.unsupported)]
    return "this computer has no usable NVIDIA GPU" + (f" ({'; '.join(reasons)})" if reasons else "")


def _check_form(words: str) -> None:
    entries = [part.strip() for part in words.split(",")]
    for entry in entries:
        if not (entry.isdecimal() or entry.startswith(("GPU-", "MIG-"))):
            raise InvalidInput(
                f"--gpus {words!r}: found {entry!r}; allowed are all, none, or indices (as nvidia-smi shows them) and UUIDs "
                "with commas between, such as 0,2"
            )
    twice = next((entry for entry in entries if entries.count(entry) > 1), None)
    if twice is not None:
        raise InvalidInput(f"--gpus {words!r}: {twice} is given twice; allowed are different GPUs")


def _names(devices: Sequence[GpuDevice]) -> list[str]:
    return [device.uuid if device.parent else str(device.index) for device in devices]
