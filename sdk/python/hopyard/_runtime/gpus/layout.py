"""Divides the GPUs of a node among its slots."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hopyard._common.formatting import count
from hopyard._runtime.gpus.detection import detect
from hopyard._runtime.gpus.devices import GpuDevice, GpuInventory, models_text
from hopyard._runtime.gpus.selection import NONE, VARIABLE, absence, select_devices
from hopyard.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class GpuOptions:
    """The options with which a user divides the GPUs of a computer.

    Attributes:
        gpus: The value of --gpus: "all", "none", or indices and UUIDs with commas between; None: not given.
        per_slot: The value of --gpus-per-slot, >= 1; None: not given.
        slots_per_gpu: The value of --slots-per-gpu, >= 1; None: not given.
    """

    gpus: str | None = None
    per_slot: int | None = None
    slots_per_gpu: int | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """The options as arguments of `hopyard agent`."""
        values = (("--gpus", self.gpus), ("--gpus-per-slot", self.per_slot), ("--slots-per-gpu", self.slots_per_gpu))
        return tuple(word for name, value in values if value is not None for word in (name, str(value)))

    @property
    def given(self) -> str:
        """The given options as one text, such as "--gpus 0,1 --gpus-per-slot 2"; empty: none is given."""
        return " ".join(self.arguments)


AUTOMATIC: Final = GpuOptions()
"""No option is given: one slot for each visible GPU."""


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """The slots of a node with their GPUs.

    Attributes:
        slots: The GPUs of each slot, at least one slot; empty: a slot without GPUs.
        slots_per_gpu: Number of slots that share each GPU.
        notes: Texts for the user that need no action.
        warnings: Texts for the user about something that is probably not intended.
    """

    slots: tuple[tuple[GpuDevice, ...], ...]
    slots_per_gpu: int = 1
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def devices(self) -> tuple[GpuDevice, ...]:
        """The GPUs of all slots, each once."""
        return tuple(dict.fromkeys(device for slot in self.slots for device in slot))

    @property
    def options(self) -> GpuOptions:
        """The options with which a node agent makes the same layout."""
        if not self.devices:
            return GpuOptions(NONE)
        names = ",".join(device.name for device in self.devices)
        if self.slots_per_gpu > 1:
            return GpuOptions(names, slots_per_gpu=self.slots_per_gpu)
        return GpuOptions(names, per_slot=len(self.slots[0]))


def lay_out_slots(
    options: GpuOptions,
    slots: int | None = None,
    *,
    most_slots: int | None = None,
    cpu_slots: int = 1,
    gpus_per_job: int = 0,
    inventory: GpuInventory | None = None,
    variable: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> SlotLayout:
    """Return the slots of a node with their GPUs. It may take seconds, because it asks the driver.

    The default is one slot for each visible GPU.

    Args:
        options: The options of the user.
        slots: The value of --slots; None: not given.
        most_slots: Used only if `slots` is None and no GPU is shared: the maximum number of slots, or their number if no GPU is used;
            None: no limit.
        cpu_slots: Number of slots if no GPU is used and neither `slots` nor `most_slots` is given, >= 1.
        gpus_per_job: Minimum number of GPUs of each slot. It is also the number that each slot gets, if neither `slots` nor an option
            gives another one. 0: the jobs need none.
        inventory: The GPUs of this host; None: detect them.
        variable: The value of CUDA_VISIBLE_DEVICES, if `inventory` is given; None: not set.
        environment: The environment with that variable, if `inventory` is not given; None: that of this process.

    Raises:
        InvalidInput: The options contradict each other or the GPUs of this host. The message names what is allowed.
    """
    if options.per_slot is not None and options.slots_per_gpu is not None:
        raise InvalidInput(
            f"--gpus-per-slot {options.per_slot} and --slots-per-gpu {options.slots_per_gpu} exclude each other: give the "
            "first for slots with several GPUs, the second for several slots on each GPU"
        )
    if inventory is None:
        inventory = detect()
        variable = (os.environ if environment is None else environment).get(VARIABLE)
    devices, warnings = select_devices(inventory, options.gpus, variable)
    switched_off = options.gpus is not None and not devices
    if not switched_off:
        warnings += [*inventory.problems, *inventory.unsupported]
    if not devices:
        return _without_gpus(options, slots or most_slots or cpu_slots, gpus_per_job, inventory, variable, warnings)
    notes: list[str] = []
    if options.slots_per_gpu is not None:
        shared = options.slots_per_gpu
        number, each = _sharing_slots(len(devices), shared, slots), 1
    elif options.per_slot is not None or slots is None:
        shared, each = 1, options.per_slot or max(1, gpus_per_job)
        most = _most_slots(devices, each, options.per_slot is not None)
        number = slots or min(most, most_slots or most)
        if number > most:
            raise InvalidInput(
                f"--slots {number} with --gpus-per-slot {each} needs {number * each} GPUs, and there "
                f"{'is 1' if len(devices) == 1 else f'are {len(devices)}'}: give at most --slots {most}"
            )
        if slots is None and most_slots is not None and most_slots > number:
            notes.append(
                f"resources.slots is {most_slots}, and {count(len(devices), 'GPU')} {'makes' if len(devices) == 1 else 'make'} "
                f"{count(number, 'slot')}: --slots-per-gpu N shares a GPU, --gpus none trains on CPUs"
            )
    else:
        number = slots
        each, shared = _evenly(devices, slots)
    if each < gpus_per_job:
        raise InvalidInput(
            f"resources.per_job.gpus is {gpus_per_job}, and each of {count(number, 'slot')} has {count(each, 'GPU')} of "
            f"{len(devices)}: give --gpus-per-slot {gpus_per_job}, fewer --slots, or more --gpus"
        )
    layout = tuple(
        tuple(devices[slot * each : (slot + 1) * each]) if shared == 1 else (devices[slot % len(devices)],)
        for slot in range(number)
    )
    if shared > 1:
        warnings.append(
            f"{shared} slots share each GPU: its memory is shared too and not limited, so one job can take it from the others"
        )
    unused = devices[number * each :] if shared == 1 else ()
    parts = [
        f"{models_text(devices)}: {count(number, 'slot')} with {count(each, 'GPU')}{' each' if number > 1 else ''}",
        *(["shared"] if shared > 1 else []),
        *([f"{models_text(unused)} unused"] if unused else []),
    ]
    notes.insert(0, ", ".join(parts) + (f" (--gpus {NONE} trains on CPUs)" if options.gpus is None else ""))
    return SlotLayout(layout, shared, tuple(notes), tuple(warnings))


def agent_layouts(
    options: GpuOptions,
    slots: int | None,
    agents: int,
    *,
    inventory: GpuInventory | None = None,
    variable: str | None = None,
) -> list[SlotLayout]:
    """Return the layout of each of several node agents on this computer.

    Each agent gets the same number of GPUs. If there are more agents than GPUs, each agent gets one GPU, and the same number of agents
    share each GPU. The first layout also contains the warnings that concern all GPUs.

    Args:
        options: The options of the user.
        slots: Number of slots of each agent; None: one for each GPU of the agent, or one slot if it has no GPU.
        agents: Number of node agents, >= 0; the result for 0 is empty.
        inventory: The GPUs of this host; None: detect them.
        variable: The value of CUDA_VISIBLE_DEVICES, if `inventory` is given; None: not set.

    Raises:
        InvalidInput: The GPUs cannot be divided evenly, or `lay_out_slots` raises it.
    """
    if not agents:
        return []
    if inventory is None:
        inventory, variable = detect(), os.environ.get(VARIABLE)
    devices, warnings = select_devices(inventory, options.gpus, variable)
    if agents == 1 or not devices:
        return [lay_out_slots(options, slots, inventory=inventory, variable=variable)] * agents
    parts = _parts(devices, agents)
    layouts = [
        lay_out_slots(
            GpuOptions(",".join(device.name for device in part), options.per_slot, options.slots_per_gpu),
            slots,
            inventory=inventory,
            variable=variable,
        )
        for part in parts
    ]
    if agents > len(devices):
        warnings.append(
            f"{agents // len(devices)} agents share each GPU: its memory is shared too and not limited, so one job can take it "
            "from the others"
        )
    merged = tuple(dict.fromkeys([*warnings, *layouts[0].warnings]))
    return [replace(layouts[0], warnings=merged), *layouts[1:]]


def _without_gpus(
    options: GpuOptions,
    number: int,
    gpus_per_job: int,
    inventory: GpuInventory,
    variable: str | None,
    warnings: Sequence[str],
) -> SlotLayout:
    why = f"--gpus is {options.gpus or NONE}" if options.gpus is not None else absence(inventory, variable)
    for option, value in (("--gpus-per-slot", options.per_slot), ("--slots-per-gpu", options.slots_per_gpu)):
        if value is not None:
            raise InvalidInput(f"{option} {value}: {why}; leave the option out to train on CPUs")
    if gpus_per_job:
        raise InvalidInput(f"resources.per_job.gpus is {gpus_per_job}, and {why}")
    hidden = inventory.devices and options.gpus is None
    notes = (f"training uses CPUs only: {why}",) if hidden else ()
    return SlotLayout(((),) * number, notes=notes, warnings=tuple(warnings))


def _parts(devices: Sequence[GpuDevice], agents: int) -> list[tuple[GpuDevice, ...]]:
    """Return the GPUs of each agent: an equal part of them, or one that is shared if there are more agents than GPUs.

    Raises:
        InvalidInput: Neither number is a multiple of the other.
    """
    if len(devices) % agents == 0:
        each = len(devices) // agents
        return [tuple(devices[agent * each : (agent + 1) * each]) for agent in range(agents)]
    if agents % len(devices) == 0:
        return [(devices[agent % len(devices)],) for agent in range(agents)]
    raise InvalidInput(
        f"--agents {agents}: {len(devices)} GPUs cannot be divided evenly among {agents} agents; give another number of "
        f"agents, fewer --gpus, or --gpus {NONE}"
    )


def _sharing_slots(devices: int, shared: int, slots: int | None) -> int:
    """Return the number of slots that share GPUs.

    Args:
        devices: Number of GPUs.
        shared: Number of slots on each GPU.
        slots: The value of --slots; None: not given.

    Raises:
        InvalidInput: `slots` is another number than `devices` times `shared`.
    """
    if slots is not None and slots != devices * shared:
        raise InvalidInput(
            f"--slots {slots} contradicts --slots-per-gpu {shared} on {count(devices, 'GPU')}, which makes "
            f"{count(devices * shared, 'slot')}: leave one of the two out"
        )
    return devices * shared


def _most_slots(devices: Sequence[GpuDevice], each: int, asked: bool) -> int:
    """Return how many slots with `each` GPUs the devices suffice for, at least 1.

    Args:
        devices: The GPUs.
        each: GPUs of a slot.
        asked: Whether `each` comes from --gpus-per-slot; otherwise from the experiment. The error message names this source.

    Raises:
        InvalidInput: There are fewer than `each` devices, or slots would need several MIG instances.
    """
    source = f"--gpus-per-slot {each}" if asked else f"resources.per_job.gpus is {each}"
    if each > 1 and any(device.parent for device in devices):
        raise InvalidInput(
            f"{source}: a process can use only one MIG instance, so 1 is allowed for slots on MIG instances"
        )
    if each > len(devices):
        there = "there is 1 GPU" if len(devices) == 1 else f"there are {len(devices)} GPUs"
        raise InvalidInput(f"{source}, and {there} to use ({models_text(devices)})")
    return len(devices) // each


def _evenly(devices: Sequence[GpuDevice], slots: int) -> tuple[int, int]:
    """Return the number of GPUs of each slot, and the number of slots on each GPU, if only --slots is given.

    Raises:
        InvalidInput: The GPUs cannot be divided evenly among the slots, nor the slots among the GPUs.
    """
    there = len(devices)
    if slots <= there and any(device.parent for device in devices):
        return 1, 1  # A process can use only one MIG instance.
    if there % slots == 0:
        return there // slots, 1
    if slots % there == 0:
        return 1, slots // there
    below = [str(number) for number in range(1, there + 1) if there % number == 0]
    unused = "--gpus-per-slot 1 to leave GPUs unused, " if slots < there else ""
    raise InvalidInput(
        f"--slots {slots}: {there} GPUs cannot be divided evenly among {slots} slots; allowed are {', '.join(below)} and "
        f"multiples of {there}; or give {unused}other --gpus, or --gpus {NONE} to train on CPUs"
    )
