"""Computes the seed with which a configuration is trained."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from hopyard.sequences import values_at
from hopyard.space import canonical_json


def configuration_seed(experiment_seed: int, hyperparameters: Mapping[str, object]) -> int:
    """Return the training seed of one configuration: 0 <= seed < 2^63.

    It depends only on the experiment's seed and on the configuration's values at position 0. It does not depend on a
    job's id, order or slot. Therefore the same configuration is trained with the same random numbers in another job, in
    a repetition of the experiment, and after a resume. The same holds for configurations whose sequences differ only at
    later positions. 1 and 1.0 are equal.

    Args:
        experiment_seed: The field `seed` of the experiment file.
        hyperparameters: The configuration.

    Raises:
        ValueError: A hyperparameter is not a JSON value.
    """
    text = f"{experiment_seed}\n{canonical_json(values_at(hyperparameters, 0))}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
