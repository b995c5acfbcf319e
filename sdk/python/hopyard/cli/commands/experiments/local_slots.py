"""The slots of a cluster that a command starts on this computer for one experiment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hopyard._runtime.gpus import AUTOMATIC, GpuOptions, SlotLayout, lay_out_slots
from hopyard._runtime.processes.cpus import available_cpus


@dataclass(frozen=True, slots=True)
class SlotWishes:
    """What the user and the experiment say about the slots.

    Attributes:
        slots: The value of --slots; None: not given.
        gpus: The options for GPUs.
        most: The experiment's `resources.slots`; None: not set.
        cpus: CPU threads that each job needs, >= 1.
        gpus_per_job: GPUs that each job needs.
    """

    slots: int | None = None
    gpus: GpuOptions = AUTOMATIC
    most: int | None = None
    cpus: int = 1
    gpus_per_job: int = 0

    def of_experiment(self, resources: Mapping[str, Any]) -> SlotWishes:
        """Return a copy with `most`, `cpus` and `gpus_per_job` from an experiment's `resources`; `slots` and `gpus` stay."""
        per_job = resources.get("per_job") or {}
        return SlotWishes(self.slots, self.gpus, resources.get("slots"), per_job.get("cpus", 1), per_job.get("gpus", 0))

    def layout(self) -> SlotLayout:
        """Return the slots with their GPUs.

        Raises:
            InvalidInput: The options contradict each other or this computer.
        """
        return lay_out_slots(
            self.gpus,
            self.slots,
            most_slots=self.most,
            cpu_slots=cpu_slots(self.cpus),
            gpus_per_job=self.gpus_per_job,
        )


def cpu_slots(cpus: int) -> int:
    """Return the number of slots for jobs that need `cpus` CPU threads each: as many as this computer's CPUs suffice for, >= 1."""
    return max(1, available_cpus() // max(1, cpus))


def slot_cpus(slots: int, cpus: int) -> int:
    """Return the CPU threads of each of `slots` slots: an equal part, rounded down, of the CPUs that this process may use.

    It is at least `cpus`, even if all slots together then have more CPU threads than there are CPUs.
    """
    return max(cpus, available_cpus() // slots)
