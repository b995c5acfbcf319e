"""The seed a configuration trains with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from hopyard.sequences import values_at
from hopyard.space import canonical_json


def configuration_seed(experiment_seed: int, hyperparameters: Mapping[str, object]) -> int:
    """The training seed of one configuration: 0 <= seed < 2^63.

    It depends on the experiment's `seed` and on the configuration's values at position 0 alone, so that configurations whose
    sequences part later train alike until then: never on a job's id, its order or
    its machine. So the same configuration trains the same way in another job, in a repetition of the experiment and
    after a resume. 1 and 1.0 are the same value.

    Raises:
        ValueError: a hyperparameter is not a JSON value.
    """
    text = f"{experiment_seed}\n{canonical_json(values_at(hyperparameters, 0))}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
