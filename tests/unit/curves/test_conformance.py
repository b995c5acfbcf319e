"""Conformance tests of all installed predictors."""

from __future__ import annotations

from typing import Any, cast

import pytest

from hopyard._common.plugins import PREDICTORS, load_plugin, plugin_names
from hopyard.predictor import Predictor
from hopyard.predictor.conformance import PredictorConformance
from tests.timing import scaled

# Parameters that keep a suite short, and known properties of predictors.
PARAMETERS: dict[str, dict[str, Any]] = {"mcmc": {"steps": 140, "burn_in": 100}}
# The tier of each suite; that of `mcmc` and of predictors that others install is nightly.
_SLOW = ["test_it_is_neither_overconfident_nor_absurdly_wide", "test_answers_do_not_depend_on_hash_order"]
_SLOWER = ["test_history_leaves_it_honest", "test_any_history_is_survived", "test_same_question_same_answer"]
TIERS = {"grid": pytest.mark.quick(merge=_SLOW), "pooled": pytest.mark.quick(merge=_SLOW + _SLOWER)}
ATTRIBUTES: dict[str, dict[str, Any]] = {
    # At least ten times their duration on an idle slot.
    "grid": {"time_limit": scaled(0.05)},
    "pooled": {"time_limit": scaled(0.2)},
    # The published model is overconfident at every share, and is implemented as published.
    "mcmc": {"honest_from": 1.0, "time_limit": scaled(1.0)},
}


def suite(name: str) -> type[PredictorConformance]:
    def make(self: PredictorConformance) -> Predictor:
        predictor = cast(type[Predictor], load_plugin(PREDICTORS, name, Predictor))
        return predictor(**PARAMETERS.get(name, {}))

    title = f"Test{name.title().replace('_', '').replace('-', '')}"
    tier = TIERS.get(name, pytest.mark.nightly)
    body = {"pytestmark": tier, "make": make, "__module__": __name__, "__qualname__": title, **ATTRIBUTES.get(name, {})}
    return type(title, (PredictorConformance,), body)


for one in map(suite, plugin_names(PREDICTORS)):
    globals()[one.__name__] = one
