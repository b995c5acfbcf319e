"""pop_plus: every machine goes to the job, new ones included, that promises most for a second of it."""

from hopyard_policies.pop_plus.calibration import Experience
from hopyard_policies.pop_plus.expected_gain import Prospect, prospect_of
from hopyard_policies.pop_plus.policy import PopPlusPolicy

__all__ = ["Experience", "PopPlusPolicy", "Prospect", "prospect_of"]
