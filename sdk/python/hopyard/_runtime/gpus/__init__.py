"""GPUs of a node: their detection by NVML, the selection of the usable ones, and their division among slots."""

from hopyard._runtime.gpus.devices import GpuDevice, GpuInventory, GpuMeasurement
from hopyard._runtime.gpus.layout import AUTOMATIC, GpuOptions, SlotLayout, lay_out_slots

__all__ = ["AUTOMATIC", "GpuDevice", "GpuInventory", "GpuMeasurement", "GpuOptions", "SlotLayout", "lay_out_slots"]
