"""pop_plus: each slot trains the job, existing or new, with the highest expected gain per second."""

from hopyard_policies.pop_plus.calibration import PredictionHistory
from hopyard_policies.pop_plus.expected_gain import Prospect, prospect_of
from hopyard_policies.pop_plus.policy import PopPlusPolicy

__all__ = ["PopPlusPolicy", "PredictionHistory", "Prospect", "prospect_of"]
