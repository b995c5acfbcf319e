"""Search spaces: typed hyperparameters with reproducible samples and grids.

The written forms in an experiment file are:

- `{uniform: [0, 1]}`: a real number. `step: 0.1` restricts it to steps; `count: 5` sets the number of grid values.
- `{loguniform: [1e-4, 1]}`: a real number with a uniform logarithm. `count: 5` sets the number of grid values.
- `{int: [1, 10]}`: an integer. `step: 2` restricts it to steps; `count: 4` limits the number of grid values.
- `{logint: [1, 1024]}`: an integer; small ones are more likely. `count: 4` limits the number of grid values.
- `{choice: [32, 64, 128]}`: one of the listed JSON values.
- `{sequence: {exponential: {initial: 0.1, gamma: {choice: [0.9, 0.95]}}}}`: a value that changes over the training
  (`hopyard.sequences`). Its fields may be parameters. A list is a choice between several sequences.
- `16`: a constant. Lists and mappings must be written `{constant: [1, 2]}`.
- `{uniform: [0, 1], when: {optimizer: sgd}}`: part of the configuration only if `optimizer` is `sgd`. A list such as
  `[sgd, rmsprop]` allows several values. If there are several conditions, all must hold.
- `{space: {depth: {int: [1, 4]}, ...}}`: a group, which is a nested mapping in the configuration. It may also have `when`.
  Conditions and constraints refer to names inside groups as `model.depth`.

Constraints such as `batch_size * width <= 4096` filter the configurations (`hopyard.space.constraints`). The names of this
package are imported on first use: clients need only `hopyard.space.values`.
"""

from typing import TYPE_CHECKING, Final

from hopyard._common.first_use import from_modules

if TYPE_CHECKING:
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

_MODULES: Final = (
    "values",
    "errors",
    "rng_streams",
    "conditions",
    "parameter",
    "continuous",
    "discrete",
    "integers",
    "constraints",
    "sequence_parameter",
    "kinds",
    "space",
)
"""The modules that define the names, the cheapest to import first."""

if not TYPE_CHECKING:  # A type checker that sees this function would accept any name.
    __getattr__ = from_modules(globals(), _MODULES)


def __dir__() -> list[str]:
    """Return all public names of the package, imported or not, and all other names that are already defined in it."""
    return sorted(set(globals()) | set(__all__))
