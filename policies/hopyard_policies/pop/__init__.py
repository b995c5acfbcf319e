"""POP (HyperDrive, section 3): confidence and expected remaining time of jobs, and the division of slots."""

from hopyard_policies.pop.expected_remaining_time import Outlook, epochs_left, outlook_of
from hopyard_policies.pop.policy import PopPolicy
from hopyard_policies.pop.slots import SlotDivision, divide

__all__ = ["Outlook", "PopPolicy", "SlotDivision", "divide", "epochs_left", "outlook_of"]
