"""Search spaces: typed hyperparameters, sampled and gridded reproducibly.

The written forms, as they stand in an experiment file:

- `{uniform: [0, 1]}`: a real number; `step: 0.1` restricts it to steps, `count: 5` grids it.
- `{loguniform: [1e-4, 1]}`: a real number whose logarithm is uniform; `count: 5` grids it.
- `{int: [1, 10]}`: an integer; `step: 2` restricts it to steps, `count: 4` thins its grid.
- `{logint: [1, 1024]}`: an integer, small ones more likely; `count: 4` thins its grid.
- `{choice: [32, 64, 128]}`: one of the JSON values listed.
- `16`: a constant; lists and mappings are written `{constant: [1, 2]}`.
"""

from hopyard.space.continuous import LogUniform, Uniform
from hopyard.space.discrete import Choice, Constant
from hopyard.space.errors import ParameterError, Problem, SpaceError, field_name
from hopyard.space.integers import IntUniform, LogInt
from hopyard.space.kinds import KINDS, did_you_mean, parameter_from_data
from hopyard.space.parameter import Parameter
from hopyard.space.space import Space
from hopyard.space.streams import below, stream
from hopyard.space.values import Configuration, JsonValue, canonical_json, is_number, json_problem, show

__all__ = [
    "KINDS",
    "Choice",
    "Configuration",
    "Constant",
    "IntUniform",
    "JsonValue",
    "LogInt",
    "LogUniform",
    "Parameter",
    "ParameterError",
    "Problem",
    "Space",
    "SpaceError",
    "Uniform",
    "below",
    "canonical_json",
    "did_you_mean",
    "field_name",
    "is_number",
    "json_problem",
    "parameter_from_data",
    "show",
    "stream",
]
