"""The simulator: runs the engine and real policies in virtual time, on recorded learning curves or on curves from a function."""

from hopyard_simulator.conditions import Costs, Faults, Fleet
from hopyard_simulator.group import ExperimentResult, JoiningExperiment
from hopyard_simulator.metrics import Result, RunInterval
from hopyard_simulator.partitions import Partitions
from hopyard_simulator.predictions import PredictionCache
from hopyard_simulator.prior_results import named
from hopyard_simulator.simulate import simulate
from hopyard_simulator.workload import CurveWorkload, Lesson, TraceWorkload, Workload
from hopyard_simulator.world import SimulationError, World

__all__ = [
    "Costs",
    "CurveWorkload",
    "ExperimentResult",
    "Faults",
    "Fleet",
    "JoiningExperiment",
    "Lesson",
    "Partitions",
    "PredictionCache",
    "Result",
    "RunInterval",
    "SimulationError",
    "TraceWorkload",
    "Workload",
    "World",
    "named",
    "simulate",
]
