"""The simulator: the live core and the live policies in virtual time, on recorded curves or on functions."""

from hopyard_scheduler.simulator.conditions import Costs, Faults, Fleet
from hopyard_scheduler.simulator.foresight import Foreseen
from hopyard_scheduler.simulator.group import Joining, MemberResult
from hopyard_scheduler.simulator.measuring import Result, RunInterval
from hopyard_scheduler.simulator.partitions import Partitions
from hopyard_scheduler.simulator.past import named
from hopyard_scheduler.simulator.simulate import simulate
from hopyard_scheduler.simulator.workload import CurveWorkload, Lesson, TraceWorkload, Workload
from hopyard_scheduler.simulator.world import SimulationError, World

__all__ = [
    "Costs",
    "CurveWorkload",
    "Faults",
    "Fleet",
    "Foreseen",
    "Joining",
    "Lesson",
    "MemberResult",
    "Partitions",
    "Result",
    "RunInterval",
    "SimulationError",
    "TraceWorkload",
    "Workload",
    "World",
    "named",
    "simulate",
]
