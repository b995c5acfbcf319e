"""The experiment file: its fields, its errors and its canonical form.

A specification (`ExperimentSpec`) is the validated content of an experiment file.
"""

from hopyard.spec.errors import SpecError, SpecProblem
from hopyard.spec.load import canonical_json, load_search, load_spec, parse_spec, placed, read_fields, spec_from_json
from hopyard.spec.models import (
    ExperimentSpec,
    GeneratorSpec,
    LogSpec,
    MetricSpec,
    PolicySpec,
    PredictorSpec,
)
from hopyard.spec.sections import JobResources, LogsSpec, ResourcesSpec, SnapshotSpec, StopSpec
from hopyard.spec.seeds import configuration_seed

__all__ = [
    "ExperimentSpec",
    "GeneratorSpec",
    "JobResources",
    "LogSpec",
    "LogsSpec",
    "MetricSpec",
    "PolicySpec",
    "PredictorSpec",
    "ResourcesSpec",
    "SnapshotSpec",
    "SpecError",
    "SpecProblem",
    "StopSpec",
    "canonical_json",
    "configuration_seed",
    "load_search",
    "load_spec",
    "parse_spec",
    "placed",
    "read_fields",
    "spec_from_json",
]
