"""pop_plus: every machine goes to the job, new ones included, that promises most for a second of it."""

from hopyard_policies.pop_plus.experience import Experience
from hopyard_policies.pop_plus.policy import PopPlusPolicy
from hopyard_policies.pop_plus.prospect import Prospect, prospect_of

__all__ = ["Experience", "PopPlusPolicy", "Prospect", "prospect_of"]
