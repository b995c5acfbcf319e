"""Search spaces: typed hyperparameters, sampled and gridded reproducibly.

The written forms, as they stand in an experiment file:

- `{uniform: [0, 1]}`: a real number; `step: 0.1` restricts it to steps, `count: 5` grids it.
- `{loguniform: [1e-4, 1]}`: a real number whose logarithm is uniform; `count: 5` grids it.
- `{int: [1, 10]}`: an integer; `step: 2` restricts it to steps, `count: 4` thins its grid.
- `{logint: [1, 1024]}`: an integer, small ones more likely; `count: 4` thins its grid.
- `{choice: [32, 64, 128]}`: one of the JSON values listed.
- `{sequence: {exponential: {initial: 0.1, gamma: {choice: [0.9, 0.95]}}}}`: a value that changes over the training
  (`hopyard.sequences`), whose fields may be parameters; a list chooses one of several sequences.
- `16`: a constant; lists and mappings are written `{constant: [1, 2]}`.
- `{uniform: [0, 1], when: {optimizer: sgd}}`: only there when `optimizer` is `sgd`; `[sgd, rmsprop]`: one of these. All of
  several conditions must hold. What is not there is absent from the configuration.
- `{space: {depth: {int: [1, 4]}, ...}}`: a group: a nested mapping in the configuration. It may have `when`, too. Names
  inside groups are `model.depth` in conditions and constraints.

Constraints such as `batch_size * width <= 4096` filter the configurations (`hopyard.space.constraints`).
"""

from hopyard.space.conditions import Condition, Entry, When
from hopyard.space.constraints import Constraint
from hopyard.space.continuous import LogUniform, Uniform
from hopyard.space.discrete import Choice, Constant
from hopyard.space.errors import ConstraintsError, ParameterError, Problem, SpaceError, field_name
from hopyard.space.integers import IntUniform, LogInt
from hopyard.space.kinds import KINDS, did_you_mean, parameter_from_data
from hopyard.space.parameter import Parameter
from hopyard.space.rng_streams import below, stream
from hopyard.space.sequence_parameter import Sequences
from hopyard.space.space import DRAWS, Space
from hopyard.space.values import Configuration, JsonValue, canonical_json, is_number, json_problem, show

__all__ = [
    "DRAWS",
    "KINDS",
    "Choice",
    "Condition",
    "Configuration",
    "Constant",
    "Constraint",
    "ConstraintsError",
    "Entry",
    "IntUniform",
    "JsonValue",
    "LogInt",
    "LogUniform",
    "Parameter",
    "ParameterError",
    "Problem",
    "Sequences",
    "Space",
    "SpaceError",
    "Uniform",
    "When",
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
